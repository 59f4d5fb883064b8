package nodefacts

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/internal/version"
	"github.com/ovn-multinet/ovn-multinet/node/install"
)

// Read reads the facts. It never fails: what cannot be read is absent or unknown, with the reason. It exists on Linux
// alone: kubectl-multinet has the types and also runs on macOS, which the package install does not compile for.
func Read(ctx context.Context, c Config) *Facts {
	node, proc := root(c.Root), procfs(c.Proc)
	f := &Facts{Version: version.Number, Architecture: runtime.GOARCH, Kernel: proc.line("sys/kernel/osrelease")}
	f.CNI = readCNI(node, proc, c)
	f.Modules = modules(node, proc, f.Kernel)
	f.Ports = proc.used(Ports)
	f.Processes = proc.running(Processes)
	f.OVS = readOVS(ctx, node, c.OVSSocket)
	f.NB = reach(ctx, c.Endpoints)
	f.Lost = lostInterfaces(node, proc)
	f.Inotify = Inotify{
		Instances: proc.number("sys/fs/inotify/max_user_instances"), Watches: proc.number("sys/fs/inotify/max_user_watches"),
	}
	return f
}

func readCNI(node root, proc procfs, c Config) CNI {
	netDir, confs := folder(node, proc, c.NetDir)
	binDir, _ := folder(node, proc, c.BinDir)
	out := CNI{NetDir: netDir, BinDir: binDir, Files: []string{}}
	if netDir.State == Absent {
		out.Error = "there is no folder " + netDir.Path
		return out
	}
	chain, err := install.ReadChain(confs, c.Primary)
	if len(chain.Files) > 0 {
		out.Files = chain.Files
	}
	if err != nil {
		out.Error = strings.ReplaceAll(err.Error(), confs, c.NetDir)
		return out
	}
	out.Primary, out.CNIVersion, out.Programs = chain.File, chain.CNIVersion, chain.Programs
	for _, program := range chain.Programs {
		if _, _, err := node.path(install.ProgramPath(c.BinDir, program)); errors.Is(err, fs.ErrNotExist) {
			out.Missing = append(out.Missing, program)
		}
	}
	return out
}

// folder returns a folder of the node, and where it is here.
func folder(node root, proc procfs, name string) (f Folder, here string) {
	f = Folder{Path: name, State: Unknown}
	here, there, err := node.path(name)
	if errors.Is(err, fs.ErrNotExist) {
		f.State = Absent
	} else if err == nil {
		f.State = proc.mountState(there)
	}
	return f, here
}
