package delegate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"
)

// supported are the versions of the CNI specification that the plugin speaks.
var supported = []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Main answers the call that the process was started for, by the CNI library's skeleton, and returns its exit code. It adds
// what the skeleton leaves out of answers (CNI specification, section 5).
func Main() (exit int) {
	asked := ""
	plugin := &Plugin{Stdout: os.Stdout}
	err := skel.PluginMainFuncsWithError(heeding(plugin.Funcs(), &asked), versions{version.PluginSupports(supported...)},
		"ovn-multinet: further interfaces for pods, on OVN networks")
	if err == nil {
		return 0
	}
	if printErr := printError(os.Stdout, err, asked); printErr != nil {
		fmt.Fprintln(os.Stderr, printErr)
	}
	return 1
}

// heeding notes which version a call is of.
func heeding(f skel.CNIFuncs, asked *string) skel.CNIFuncs {
	heed := func(run func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			*asked = versionOf(args.StdinData)
			return run(args)
		}
	}
	del := func(args *skel.CmdArgs) error {
		// After a DEL the skeleton refuses a CNI_NETNS that is the node's own, so no retry would ever succeed. Our DEL goes
		// by the journal and enters no namespace.
		args.NetnsOverride = "1"
		return f.Del(args)
	}
	return skel.CNIFuncs{Add: heed(f.Add), Del: heed(del), Check: heed(f.Check), GC: heed(f.GC), Status: heed(f.Status)}
}

// versionOf is the cniVersion of what a runtime gives, "" when there is none.
func versionOf(stdin []byte) string {
	var c struct {
		CNIVersion string `json:"cniVersion"`
	}
	_ = json.Unmarshal(stdin, &c)
	return c.CNIVersion
}

// versions answers VERSION in the version that was asked in ("VERSION Success"), which the skeleton does not read.
type versions struct{ version.PluginInfo }

// Encode writes the answer.
func (v versions) Encode(w io.Writer) error {
	asked := ""
	// Someone who asks by hand, at a terminal, has nothing to say.
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice == 0 {
		stdin, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		asked = versionOf(stdin)
	}
	return json.NewEncoder(w).Encode(map[string]any{
		"cniVersion": cmp.Or(asked, supported[len(supported)-1]), "supportedVersions": v.SupportedVersions(),
	})
}

// printError adds to an error ("Error") the version, and the name of a variable whose value the skeleton does not take.
func printError(w io.Writer, e *types.Error, asked string) error {
	if e.Code == types.ErrInvalidEnvironmentVariables && !strings.Contains(e.Msg, "CNI_") {
		if utils.ValidateContainerID(os.Getenv("CNI_CONTAINERID")) != nil {
			e.Msg = "CNI_CONTAINERID: " + e.Msg
		} else {
			e.Msg = "CNI_IFNAME: " + e.Msg
		}
	}
	return json.NewEncoder(w).Encode(struct {
		CNIVersion string `json:"cniVersion"`
		*types.Error
	}{cmp.Or(asked, supported[len(supported)-1]), e})
}
