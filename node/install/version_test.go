package install

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// speaker is a plugin that says what it speaks, up to a version, as CNI's own library has it say.
func speaker(upTo string) string {
	all := []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
	all = all[:slices.Index(all, upTo)+1]
	return fmt.Sprintf(`#!/bin/sh
read -r config
[ "$CNI_COMMAND" = VERSION ] || exit 7
echo '{"cniVersion": "1.1.0", "supportedVersions": ["%s"]}'
`, strings.Join(all, `", "`))
}

// flannelOf is Flannel's conflist with its entry's keys as given.
func flannelOf(version, keys string) string {
	return fmt.Sprintf(`{"name":"cbr0","cniVersion":%q,"plugins":[{"type":"flannel"%s},{"type":"portmap"}]}`, version,
		keys)
}

// TestRaise: the conflist's version is the highest that is not above what the operator says of the runtime and that
// each plugin of the chain says, and never below the primary's.
func TestRaise(t *testing.T) {
	const absent, mute, strange = "absent", "mute", "strange"
	for _, c := range []struct {
		name    string
		runtime string
		primary string            // flannelOf("0.3.1", "") if it is empty
		plugins map[string]string // what they speak up to, 1.1.0 if they are not among them
		want    string
		says    string // "": nothing kept it
	}{
		{name: "all speak the newest", runtime: "1.1.0", want: "1.1.0"},
		{name: "the operator says nothing", runtime: "", want: "0.3.1"},
		{name: "and a plugin is absent", runtime: "", plugins: map[string]string{"portmap": absent}, want: "0.3.1"},
		{name: "the runtime is older than all plugins", runtime: "1.0.0", want: "1.0.0"},
		{name: "the runtime is older than the primary's", runtime: "0.2.0", want: "0.3.1"},
		{name: "one plugin is older", runtime: "1.1.0", plugins: map[string]string{"portmap": "0.4.0"}, want: "0.4.0"},
		{name: "ours is older", runtime: "1.1.0", plugins: map[string]string{PluginName: "1.0.0"}, want: "1.0.0"},
		{
			name: "one plugin is older than the primary's", runtime: "1.1.0",
			plugins: map[string]string{"portmap": "0.2.0"}, want: "0.3.1",
		},
		{
			name: "one is absent", runtime: "1.1.0", plugins: map[string]string{"portmap": absent}, want: "0.3.1",
			says: "plugin portmap does not say what it speaks",
		},
		{
			name: "one does not answer with JSON", runtime: "1.1.0", plugins: map[string]string{"portmap": strange},
			want: "0.3.1", says: "plugin portmap does not say what it speaks",
		},
		{
			name: "one fails", runtime: "1.1.0", plugins: map[string]string{"portmap": mute}, want: "0.3.1",
			says: "plugin portmap does not say what it speaks",
		},
		{
			name: "the bridge that Flannel runs unsaid", runtime: "1.1.0",
			plugins: map[string]string{"bridge": "0.4.0"}, want: "0.4.0",
		},
		{name: "and its IPAM", runtime: "1.1.0", plugins: map[string]string{"host-local": "1.0.0"}, want: "1.0.0"},
		{
			name: "what Flannel runs by name", runtime: "1.1.0", primary: flannelOf("0.3.1",
				`,"delegate":{"type":"ptp","ipam":{"type":"dhcp"}}`),
			plugins: map[string]string{"bridge": absent, "host-local": absent, "ptp": "1.0.0", "dhcp": "0.4.0"}, want: "0.4.0",
		},
		{
			name: "a plugin with an IPAM", runtime: "1.1.0", primary: `{"name":"x","cniVersion":"0.3.1","plugins":[{"type":"bridge","ipam":{"type":"dhcp"}}]}`,
			plugins: map[string]string{"flannel": absent, "portmap": absent, "host-local": absent, "dhcp": "0.4.0"}, want: "0.4.0",
		},
		{
			name: "a single plugin's", runtime: "1.1.0", primary: `{"name":"x","cniVersion":"0.4.0","type":"bridge"}`,
			want: "1.1.0",
		},
		{
			name: "a primary without a version", runtime: "1.0.0",
			primary: `{"name":"x","plugins":[{"type":"bridge"}]}`, want: "1.0.0",
		},
		{name: "a primary of the future", runtime: "1.1.0", primary: flannelOf("9.0.0", ""), want: "9.0.0"},
		{name: "a primary whose version is none", runtime: "1.1.0", primary: flannelOf("newest", ""), want: "newest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := node(t)
			conf.CNIVersion = c.runtime
			for _, name := range []string{"flannel", "portmap", "bridge", "host-local", "ptp", "dhcp", PluginName} {
				switch text := speaker("1.1.0"); c.plugins[name] {
				case absent:
				case strange:
					program(t, conf, name, "#!/bin/sh\necho hello\n")
				case mute:
					program(t, conf, name, "#!/bin/sh\nexit 1\n")
				case "":
					program(t, conf, name, text)
				default:
					program(t, conf, name, speaker(c.plugins[name]))
				}
			}
			if c.primary == "" {
				c.primary = flannelOf("0.3.1", "")
			}
			version, says := raised(t, working(t, conf), c.primary)
			if version != c.want {
				t.Errorf("cniVersion %q (%s), want %q", version, says, c.want)
			}
			if (says == "") != (c.says == "") || !strings.Contains(says, c.says) {
				t.Errorf("it says %q, want %q", says, c.says)
			}
		})
	}
}

// program puts a script into the folder of plugins.
func program(t *testing.T, c Config, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(c.BinDir, name), []byte(text), 0o755))
}

// raised is the version of the conflist that is made, and what is said of it.
func raised(t *testing.T, i *installer, primary string) (cniVersion, says string) {
	t.Helper()
	text, says, err := i.derive([]byte(primary), i.Entry)
	must(t, err)
	var list struct{ CNIVersion string }
	must(t, json.Unmarshal(text, &list))
	return list.CNIVersion, says
}

// TestRaiseOfAPluginThatHangs: it is waited for a while only and killed, with what it started, and the conflist stays
// as it is.
func TestRaiseOfAPluginThatHangs(t *testing.T) {
	for name, text := range map[string]string{
		"itself":             "#!/bin/sh\necho $$ >%s\nexec sleep 1000\n",
		"a child of a child": "#!/bin/sh\nsleep 1000 &\necho $! >%s\nwait\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := node(t)
			c.CNIVersion, c.versionTimeout = "1.1.0", time.Second
			for _, name := range []string{"flannel", "bridge", "host-local", PluginName} {
				program(t, c, name, speaker("1.1.0"))
			}
			pidFile := filepath.Join(c.BinDir, "pid")
			program(t, c, "portmap", fmt.Sprintf(text, pidFile))
			i := working(t, c)
			// Who waits for it all the same is let go, so that the test ends.
			letGo := time.AfterFunc(20*time.Second, func() {
				var pid int
				if _, err := fmt.Sscan(read(pidFile), &pid); err == nil {
					t.Error("it is waited for")
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			version, says := raised(t, i, flannelOf("0.3.1", ""))
			letGo.Stop()
			if version != "0.3.1" || !strings.Contains(says, "plugin portmap does not say what it speaks: no answer in time") {
				t.Errorf("cniVersion %q, says %q", version, says)
			}
			var pid int
			if _, err := fmt.Sscan(read(pidFile), &pid); err != nil {
				t.Fatalf("it was not run: %v", err)
			}
			until(t, "it is killed", func() bool { return gone(pid) })
		})
	}
}

// gone reports whether a process has ended, whoever is to bury it.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat := read(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(stat, ") ")
	return strings.HasPrefix(state, "Z")
}

// TestRaiseKeepsAllElse: raised, the conflist is the primary's in all but the version, and the log's line says what
// kept it.
func TestRaiseKeepsAllElse(t *testing.T) {
	c := node(t)
	c.CNIVersion = "1.1.0"
	for _, name := range []string{"flannel", "bridge", "host-local", "portmap", PluginName} {
		program(t, c, name, speaker("1.0.0"))
	}
	i := working(t, c)
	got, _, err := i.derive([]byte(flannel), c.Entry)
	must(t, err)
	plain, err := Derive([]byte(flannel), c.Entry)
	must(t, err)
	if want := strings.Replace(string(plain), `"cniVersion": "0.3.1"`, `"cniVersion": "1.0.0"`, 1); string(got) != want {
		t.Errorf("it is %s\nwant %s", got, want)
	}
	must(t, os.Remove(filepath.Join(c.BinDir, "host-local")))
	write(t, c.primary(), flannel)
	state, err := i.sync(filepath.Join(c.NetDir, "10-flannel.conflist"))
	if err != nil || !strings.Contains(state, "in sync with 10-flannel.conflist; cniVersion stays, plugin host-local does not say what it speaks: ") {
		t.Errorf("it says %q, %v", state, err)
	}
}

// TestVersionFlag: a version that is none is refused at the start, where the operator reads it.
func TestVersionFlag(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "0.4.0": "", "1.1.0": "",
		"latest": `--cni-version "latest" is none of 0.1.0, `, "v1.1.0": `--cni-version "v1.1.0" is none of`, "1.1": `--cni-version "1.1" is none of`, "2.0.0": `--cni-version "2.0.0" is none of`,
	} {
		err := Config{CNIVersion: value}.check()
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
}

// TestRaiseAsksAgain: plugins are asked once, and anew when one of their files is another.
func TestRaiseAsksAgain(t *testing.T) {
	c := node(t)
	c.CNIVersion = "1.1.0"
	asked := filepath.Join(c.BinDir, "asked")
	for _, name := range []string{"flannel", "bridge", "host-local", "portmap", PluginName} {
		program(t, c, name, speaker("0.4.0")+"echo "+name+" >>"+asked+"\n")
	}
	i := working(t, c)
	want := strings.Join([]string{"bridge", "flannel", "host-local", PluginName, "portmap"}, "\n")
	for range 3 {
		if version, says := raised(t, i, flannelOf("0.3.1", "")); version != "0.4.0" || says != "" {
			t.Errorf("cniVersion %q, says %q", version, says)
		}
	}
	lines := strings.Split(read(asked), "\n")
	if slices.Sort(lines); strings.Join(lines, "\n") != want {
		t.Errorf("asked %q", lines)
	}
	for _, name := range []string{"flannel", "bridge", "host-local", "portmap", PluginName} {
		program(t, c, name, speaker("1.0.0"))
	}
	if version, says := raised(t, i, flannelOf("0.3.1", "")); version != "1.0.0" || says != "" {
		t.Errorf("after an upgrade of the plugins: cniVersion %q, says %q", version, says)
	}
}
