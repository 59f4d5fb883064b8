package plugin

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

// supported are the versions of the CNI specification that the plugin supports.
var supported = []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Main answers the CNI call of this process through the skeleton of the CNI library, and returns the exit code. It
// adds the fields that the skeleton omits from answers (CNI specification, section 5).
func Main() (exit int) {
	asked := ""
	plugin := &Plugin{Stdout: os.Stdout}
	err := skel.PluginMainFuncsWithError(noteVersion(plugin.Funcs(), &asked),
		versions{version.PluginSupports(supported...)},
		"ovn-multinet: further interfaces for pods, on OVN networks")
	if err == nil {
		return 0
	}
	if printErr := printError(os.Stdout, err, asked); printErr != nil {
		fmt.Fprintln(os.Stderr, printErr)
	}
	return 1
}

// noteVersion stores the CNI version of a call in asked.
func noteVersion(f skel.CNIFuncs, asked *string) skel.CNIFuncs {
	note := func(run func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			*asked = versionOf(args.StdinData)
			return run(args)
		}
	}
	del := func(args *skel.CmdArgs) error {
		// After a DEL, the skeleton refuses a CNI_NETNS that is the node's network namespace, so no retry would ever
		// succeed. Our DEL uses the journal and enters no network namespace.
		args.NetnsOverride = "1"
		return f.Del(args)
	}
	return skel.CNIFuncs{Add: note(f.Add), Del: note(del), Check: note(f.Check), GC: note(f.GC), Status: note(f.Status)}
}

// versionOf is the cniVersion of a runtime's input; "": there is none.
func versionOf(stdin []byte) string {
	var c struct {
		CNIVersion string `json:"cniVersion"`
	}
	_ = json.Unmarshal(stdin, &c)
	return c.CNIVersion
}

// versions answers VERSION in the CNI version of the request ("VERSION Success"). The skeleton does not read this
// version.
type versions struct{ version.PluginInfo }

// Encode writes the answer.
func (v versions) Encode(w io.Writer) error {
	asked := ""
	// A terminal sends no request.
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

// printError adds the CNI version to an error ("Error"). If the skeleton refuses the value of a variable, printError
// adds the name of the variable.
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
