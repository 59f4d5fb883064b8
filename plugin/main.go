package plugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// supported are the versions of the CNI specification that the plugin supports.
var supported = []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Main answers the CNI call of this process through the skeleton of the CNI library, and returns the exit code. It
// adds the fields that the skeleton omits from answers (CNI specification, section 5).
func Main() (exit int) {
	var stdin []byte
	plugin := &Plugin{Stdout: os.Stdout}
	var err *types.Error
	if os.Getenv("CNI_COMMAND") == conf.ChangeCommand {
		err = plugin.mainChange()
	} else {
		err = skel.PluginMainFuncsWithError(noteInput(plugin.Funcs(), &stdin),
			versions{version.PluginSupports(supported...)},
			"ovn-multinet: further interfaces for pods, on OVN networks")
	}
	if err == nil {
		return 0
	}
	if printErr := printError(os.Stdout, err, versionOf(stdin)); printErr != nil {
		fmt.Fprintln(os.Stderr, printErr)
	}
	return 1
}

// mainChange runs Change. The container and the rest are in the variables of a CNI call, the configuration is the
// input. CNI_NETNS, CNI_ARGS and prevResult are only for a pod that the journal does not have.
func (p *Plugin) mainChange() *types.Error {
	stdin, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = edge("CHANGE", p.Change)(&skel.CmdArgs{
			ContainerID: os.Getenv("CNI_CONTAINERID"), IfName: os.Getenv("CNI_IFNAME"), Path: os.Getenv("CNI_PATH"),
			Netns: os.Getenv("CNI_NETNS"), Args: os.Getenv("CNI_ARGS"), StdinData: stdin,
		})
	}
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*types.Error](err); ok {
		return known
	}
	return types.NewError(types.ErrIOFailure, err.Error(), "")
}

// noteInput stores the input of a call in stdin. It also turns off the skeleton's own check of CNI_NETNS, which comes
// after the call: ADD itself refuses the node's network namespace before it does anything, and a DEL that was refused
// after its work would be retried for ever. Our DEL uses the journal and enters no network namespace.
func noteInput(f skel.CNIFuncs, stdin *[]byte) skel.CNIFuncs {
	note := func(run func(*skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			*stdin = args.StdinData
			args.NetnsOverride = "1"
			return run(args)
		}
	}
	return skel.CNIFuncs{Add: note(f.Add), Del: note(f.Del), Check: note(f.Check), GC: note(f.GC), Status: note(f.Status)}
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
