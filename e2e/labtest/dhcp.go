package labtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// dhclientConf requests what a guest needs. Option 121 is not built into dhclient.
const dhclientConf = `timeout 60;
option rfc3442-classless-static-routes code 121 = array of unsigned integer 8;
request subnet-mask, host-name, routers, interface-mtu, domain-name-servers, domain-name, rfc3442-classless-static-routes,
	dhcp6.name-servers;
`

// Lease runs dhclient for a family, "-4" or "-6", until it has a lease, and returns what it heard, by dhclient's names
// without "new_". The interface stays as it is. run runs a command where the interface is; dir is an empty folder.
func Lease(ctx context.Context, run func(context.Context, ...string) (string, error), dir, family, ifName string) (map[string]string, error) {
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("conf"), []byte(dhclientConf), 0o644); err != nil {
		return nil, err
	}
	script := "#!/bin/sh\nenv | sed -n 's/^new_//p' >>" + file("heard") + "\n"
	if err := os.WriteFile(file("script"), []byte(script), 0o755); err != nil {
		return nil, err
	}
	// Under its own path, AppArmor lets dhclient run no other script than Debian's.
	path, err := exec.LookPath("dhclient")
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file("dhclient"), program, 0o755); err != nil {
		return nil, err
	}
	for _, what := range []string{"-1", "-x"} { // once, and end
		if _, err := run(ctx, file("dhclient"), family, what, "-sf", file("script"), "-lf", file("leases"), "-pf", file("pid"),
			"-cf", file("conf"), ifName); err != nil {
			return nil, err
		}
	}
	text, err := os.ReadFile(file("heard"))
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = value
	}
	return values, err
}
