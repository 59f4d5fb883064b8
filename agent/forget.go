package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/plan"
)

// leftBehind lists the attachments of the journal with delegates that would not go.
func (a *Agent) leftBehind() ([]plan.LeftBehind, error) {
	attached, _, err := plan.ReadAttached(a.conf.StateDir)
	if err != nil {
		return nil, conf.Errorf(conf.CodeTryAgain, "can the agent read the plugin's journal below --state-dir?", "%w", err)
	}
	all := []plan.LeftBehind{}
	for i := range attached {
		e := &attached[i]
		if e.Complaints == 0 || e.Plan == nil {
			continue
		}
		l := plan.LeftBehind{Sandbox: e.Sandbox, Complaints: e.Complaints, Complaint: e.Complaint, Since: e.Written, Forgotten: e.Forgotten}
		for _, d := range e.Plan.Delegates {
			one := plan.LeftDelegate{Interface: d.Name, Network: d.Network}
			if d.Device != nil {
				one.Device = d.Device.ID
			}
			l.Delegates = append(l.Delegates, one)
		}
		all = append(all, l)
	}
	return all, nil
}

func (a *Agent) left(_ context.Context, _ *plan.LeftRequest, send deliver) error {
	all, err := a.leftBehind()
	if err != nil {
		return err
	}
	return send(plan.Left{Attachments: all})
}

// forget marks an attachment for the plugin, which has the journal: its delegates are not tried again. Their devices are free
// at once, the plugin's next call of the container, or the next DEL of another, removes the entry.
func (a *Agent) forget(_ context.Context, r *plan.ForgetRequest, send deliver) error {
	all, err := a.leftBehind()
	if err != nil {
		return err
	}
	var found []plan.LeftBehind
	for _, l := range all {
		if strings.HasPrefix(l.ContainerID, r.ContainerID) && (r.Interface == "" || l.Interface == r.Interface) {
			found = append(found, l)
		}
	}
	if len(found) != 1 || r.ContainerID == "" {
		return conf.Errorf(conf.CodeInvalidConfig, "without an argument, the command lists them", "container %q: %d have this ID or beginning and delegates whose DEL failed, where one is wanted", r.ContainerID, len(found))
	}
	l := &found[0]
	if err := os.WriteFile(plan.ForgetMark(a.conf.StateDir, &l.Sandbox), nil, 0o600); err != nil {
		return conf.Errorf(conf.CodeInternal, "can the agent write to release/ below --state-dir?", "mark container %.12s: %w", l.ContainerID, err)
	}
	l.Forgotten = true
	a.log.Warn("an operator gave up delegates that would not go", "pod", l.Namespace+"/"+l.Pod, "containerID", l.ContainerID, "delegates", l.Delegates, "complaint", l.Complaint)
	return send(l)
}

// dropMark removes a mark of release/ whose attachment is gone: the plugin may have been killed between the two.
func (a *Agent) dropMark(name string) {
	id, ok := strings.CutPrefix(name, plan.ForgetPrefix)
	if !ok {
		return
	}
	if _, err := os.Lstat(filepath.Join(a.conf.StateDir, plan.AttachedDir, id)); errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(filepath.Join(a.releaseDir(), name))
	}
}
