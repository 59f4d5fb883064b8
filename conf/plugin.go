package conf

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// AnnotationsCapability is the capability by which container runtimes give the pod's annotations to a plugin.
const AnnotationsCapability = "io.kubernetes.cri.pod-annotations"

// ChangeCommand is the value of CNI_COMMAND by which the plugin answers no call of the CNI specification, but changes
// the networks of a pod that runs.
const ChangeCommand = "CHANGE"

// Defaults of the plugin's conf.
const (
	DefaultAgentSocket = "/run/ovn-multinet/agent.sock"
	DefaultStateDir    = "/var/lib/cni/ovn-multinet"
	// DefaultTimeout leaves a minute of the four that kubelet gives to the creation of a sandbox. When a node starts
	// hundreds of pods at once, most of the time is the wait for a place in the agent's queue. An error would only make
	// kubelet create the whole sandbox again.
	DefaultTimeout = 3 * time.Minute
)

// Plugin is our entry in the node's conflist. It is the last entry, after the plugins of the primary network.
type Plugin struct {
	Name             string // of the conflist
	AgentSocket      string
	StateDir         string
	AllowedDelegates []string
	AllowedIPAM      []string        // the plugins that delegates may run for addresses
	LogFile          string          // empty: no log of its own
	Timeout          time.Duration   // of one ADD as a whole
	Draining         bool            // the node refuses new attachments
	StrictStatus     bool            // STATUS fails while agent, NB or Open vSwitch do not answer
	RawResult        json.RawMessage // prevResult, byte for byte
	// ValidAttachments are the containers and interfaces that GC keeps (CNI specification, section 2).
	ValidAttachments []types.GCAttachment
	// Annotations are the pod's annotations from the runtime. nil: the runtime gave none, which differs from an empty
	// map.
	Annotations map[string]string
}

// pluginJSON has the keys of our entry.
type pluginJSON struct {
	CNIVersion       string          `json:"cniVersion"`
	Name             string          `json:"name"`
	Type             string          `json:"type"`
	Capabilities     json.RawMessage `json:"capabilities"`
	IPAM             json.RawMessage `json:"ipam"`
	DNS              json.RawMessage `json:"dns"`
	Args             json.RawMessage `json:"args"`
	PrevResult       json.RawMessage `json:"prevResult"`
	AgentSocket      string          `json:"agentSocket"`
	StateDir         string          `json:"stateDir"`
	AllowedDelegates []string        `json:"allowedDelegates"`
	AllowedIPAM      []string        `json:"allowedIPAM"`
	LogFile          string          `json:"logFile"`
	Timeout          string          `json:"timeout"`
	StrictStatus     bool            `json:"strictStatus"`
	Draining         bool            `json:"draining"`
	RuntimeConfig    struct {
		Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
	} `json:"runtimeConfig"`
}

// Strictness says what to do with unknown keys.
type Strictness bool

// Strict refuses unknown keys; Lenient ignores them.
const (
	Strict  Strictness = true
	Lenient Strictness = false
)

// correctPlugin is what to do about a wrong configuration of the plugin: the installer writes it again if it is edited.
const correctPlugin = "correct the chart's values plugin: the installer writes the ovn-multinet entry of the node's " +
	"conflist from them"

// ParsePlugin parses the plugin's configuration, which the runtime writes to the plugin's standard input.
func ParsePlugin(stdin []byte, strict Strictness) (*Plugin, error) {
	var raw pluginJSON
	// The runtime adds keys of its own for GC (CNI 1.1, "cni.dev/valid-attachments").
	ignored := func(key string) bool { return strict == Lenient || strings.HasPrefix(key, "cni.dev/") }
	if err := DecodeObject(stdin, &raw, ignored); err != nil {
		return nil, Errorf(CodeDecoding, correctPlugin, "plugin configuration: %w", err)
	}
	p := &Plugin{
		Name: raw.Name, AgentSocket: raw.AgentSocket, StateDir: raw.StateDir, LogFile: raw.LogFile, Timeout: DefaultTimeout,
		AllowedDelegates: raw.AllowedDelegates, AllowedIPAM: raw.AllowedIPAM,
		StrictStatus: raw.StrictStatus, Draining: raw.Draining, Annotations: raw.RuntimeConfig.Annotations,
	}
	// The plugin prints the result byte for byte, so it must not be encoded again.
	var verbatim struct {
		PrevResult       json.RawMessage      `json:"prevResult"`
		ValidAttachments []types.GCAttachment `json:"cni.dev/valid-attachments"`
	}
	if err := json.Unmarshal(stdin, &verbatim); err != nil {
		return nil, Errorf(CodeDecoding, "", "plugin configuration: %w", err)
	}
	switch r := verbatim.PrevResult; {
	case string(r) == "null":
		verbatim.PrevResult = nil
	case len(r) > 0 && r[0] != '{':
		return nil, Errorf(CodeDecoding, "the plugin before ovn-multinet in the conflist gave it",
			"plugin configuration: prevResult is not a JSON object")
	}
	p.RawResult, p.ValidAttachments = verbatim.PrevResult, verbatim.ValidAttachments
	if p.AgentSocket == "" {
		p.AgentSocket = DefaultAgentSocket
	}
	if p.StateDir == "" {
		p.StateDir = DefaultStateDir
	}
	return p, p.validate(raw.Timeout)
}

func (p *Plugin) validate(timeout string) error {
	bad := func(format string, args ...any) error {
		return Errorf(CodeInvalidConfig, correctPlugin,
			"plugin configuration: "+format, args...)
	}
	if timeout != "" {
		d, err := time.ParseDuration(timeout)
		if err != nil || d < time.Second {
			return bad("timeout: %q is not a duration of at least 1s, like \"60s\"", timeout)
		}
		p.Timeout = d
	}
	for _, f := range []struct{ key, path string }{
		{"agentSocket", p.AgentSocket}, {"stateDir", p.StateDir}, {"logFile", p.LogFile},
	} {
		if f.path != "" && (!filepath.IsAbs(f.path) || filepath.Clean(f.path) != f.path) {
			return bad("%s: %q is not a clean absolute path", f.key, f.path)
		}
	}
	for _, list := range []struct {
		key     string
		plugins []string
	}{{"allowedDelegates", p.AllowedDelegates}, {"allowedIPAM", p.AllowedIPAM}} {
		for _, d := range list.plugins {
			if d == "" || strings.ContainsAny(d, "/\\") || strings.HasPrefix(d, ".") {
				return bad("%s: %q is not the name of a plugin", list.key, d)
			}
		}
	}
	return nil
}

// CheckInterfaceName refuses a name that Linux does not accept for an interface (dev_valid_name), or OVN in the name of
// a port.
func CheckInterfaceName(name string) error {
	if name == "" || len(name) > 15 {
		return fmt.Errorf("interface name %.20q is not of 1 to 15 characters", name)
	}
	if name == "." || name == ".." || name == "all" || name == "default" {
		return fmt.Errorf("interface name %q is reserved", name)
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c > '~' || c == '/' || c == ':' || c == '"' || c == '\\' || c == ',' || c == '%' {
			return fmt.Errorf("interface name %q has a character that an interface cannot have", name)
		}
	}
	return nil
}
