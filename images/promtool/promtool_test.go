package promtool

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// onlyTools has the test see these programs of the machine, and an empty cache.
func onlyTools(t *testing.T, programs ...string) (bin string) {
	t.Helper()
	bin = t.TempDir()
	for _, program := range programs {
		path, err := exec.LookPath(program)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, program))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", bin+":/usr/sbin:/sbin")
	return bin
}

// works fails the test unless the program says its version and is alone in its folder.
func works(t *testing.T, path string) {
	t.Helper()
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "promtool, version ") {
		t.Errorf("%v: %s", err, out)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); err != nil || len(left) != 1 {
		t.Errorf("the folder has %q: %v", left, err)
	}
}

// TestPath: the program runs, also on a machine that has none, and a second call fetches nothing.
func TestPath(t *testing.T) {
	onlyTools(t, "apt-get", "dpkg", "dpkg-deb", "tar")
	path, err := Path()
	if err != nil {
		t.Fatal(err)
	}
	works(t, path)
	t.Setenv("PATH", t.TempDir())
	if again, err := Path(); err != nil || again != path {
		t.Errorf("the second call: %s, %v", again, err)
	}
}

// TestPackages: the program comes from the package that the release of Debian has, also if the machine's lists of packages
// are absent or old.
func TestPackages(t *testing.T) {
	for kind, name := range map[string]string{"promtool": "promtool", "prometheus": "prometheus", "without lists": "prometheus"} {
		t.Run(kind, func(t *testing.T) {
			bin := onlyTools(t, "dpkg-deb", "tar", "cp", "sh", "rm", "touch")
			tree := t.TempDir()
			for file, text := range map[string]string{
				"tree/DEBIAN/control":    "Package: " + name + "\nVersion: 1\nArchitecture: all\nMaintainer: a <a@example.org>\nDescription: a\n",
				"tree/usr/bin/promtool":  "#!/bin/sh\necho promtool, version 1\n",
				"tree/usr/bin/other":     "#!/bin/sh\n",
				"tree/etc/promtool.conf": "a\n",
			} {
				path := filepath.Join(tree, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			deb := filepath.Join(tree, name+"_1_all.deb")
			if out, err := exec.Command("dpkg-deb", "--build", filepath.Join(tree, "tree"), deb).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			// Like apt-get download, with this package alone.
			lists := filepath.Join(tree, "lists")
			if kind != "without lists" {
				if err := os.WriteFile(lists, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			script := "#!/bin/sh\nfor last; do :; done\n[ \"$last\" = update ] && { touch " + lists + "; exit; }\n" +
				"[ -e " + lists + " ] && [ \"$last\" = " + name + " ] || { echo 'E: Unable to locate package' >&2; exit 100; }\ncp " + deb + " .\n"
			if err := os.WriteFile(filepath.Join(bin, "apt-get"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			path, err := Path()
			if err != nil {
				t.Fatal(err)
			}
			works(t, path)
		})
	}
}

// TestNoPromtool: the error is one line that says how to get the program.
func TestNoPromtool(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	_, err := Path()
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "run `apt-get update` as root, or put a promtool") {
		t.Errorf("%v", err)
	}
}
