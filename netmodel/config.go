package netmodel

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// Bounds on spec.config, in bytes.
const (
	// MaxNetworkConfig is the bound for an OVN network: about 300 routes fit into it.
	MaxNetworkConfig = 16 << 10
	// MaxDelegateConfig is the bound for a network of other plugins.
	MaxDelegateConfig = 256 << 10
	// KeptConfig is the longest text that a source keeps in memory: no longer than the object around it.
	KeptConfig = 1 << 10
)

// Config is the configuration of a NAD, its spec.config. A source parses it once, and all callers use the result.
// A Config is immutable. A nil Config is an empty text.
type Config struct {
	text   string            // "" if it is longer than the source keeps
	size   int               // of the text, in bytes
	digest [sha256.Size]byte // of the text

	kind       string // the "type"
	name       string // the "name", of an OVN network
	kindErr    error  // why there is no type
	id         string // of the OVN network; "" for a network of other plugins
	idErr      error  // why there is no ID
	network    *Network
	networkErr error // why the OVN network is refused
}

// ParseConfig parses the spec.config of the NAD namespace/name. The Config has the text if that has at most keep bytes.
func ParseConfig(namespace, name, text string, keep int) *Config {
	return parseConfig(namespace, name, text, keep, true)
}

// parseAcceptedConfig parses a configuration that the controller has accepted.
func parseAcceptedConfig(namespace, name, text string) *Config {
	return parseConfig(namespace, name, text, 0, false)
}

func parseConfig(namespace, name, text string, keep int, bounded bool) *Config {
	config := []byte(text)
	c := &Config{size: len(text), digest: sha256.Sum256(config)}
	if len(text) <= keep {
		c.text = text
	}
	kind, confName, err := kindAndName(config)
	c.kind = strings.Clone(kind[:min(len(kind), maxKind)])
	switch {
	case err != nil:
		c.kindErr, c.idErr, c.networkErr = err, err, err
		return c
	case !conf.IsOVN(kind):
		return c
	case kind == conf.NetworkType:
		c.id = namespace + "/" + name
	case bounded && len(text) > MaxNetworkConfig:
		c.idErr = tooLarge(len(text))
	default:
		c.id, c.idErr = confName, checkShared(confName)
	}
	c.name = strings.Clone(confName[:min(len(confName), maxName)])
	if bounded {
		c.network, c.networkErr = parseBounded(namespace, name, kind, config)
	} else {
		c.network, c.networkErr = parseKind(namespace, name, kind, config)
	}
	return c
}

// maxKind is the number of bytes of a "type" that a Config keeps. The name of a program is shorter.
const maxKind = 128

// maxName is the number of bytes of a "name" that a Config keeps. A longer one is the name of no IPAMClaim's network.
const maxName = 256

func tooLarge(size int) error {
	return fmt.Errorf("spec.config: %w", conf.TooLarge(size, MaxNetworkConfig))
}

// Text returns the configuration as written, or "" if the text is longer than the source keeps.
func (c *Config) Text() string {
	if c == nil {
		return ""
	}
	return c.text
}

// Size returns the size of the text in bytes, also if the source does not keep the text.
func (c *Config) Size() int {
	if c == nil {
		return 0
	}
	return c.size
}

// Omitted reports whether the source does not keep the text.
func (c *Config) Omitted() bool { return c.Size() > len(c.Text()) }

// Digest returns a hash of the text.
func (c *Config) Digest() [sha256.Size]byte {
	if c == nil {
		return sha256.Sum256(nil)
	}
	return c.digest
}

// IsOf reports whether the configuration was parsed from this text.
func (c *Config) IsOf(text string) bool { return c.Digest() == sha256.Sum256([]byte(text)) }

// kindAndName reads the "type" of a configuration and its "name". A list has the type of its first plugin if that is a
// network of OVN, and the type "conflist" otherwise.
func kindAndName(config []byte) (kind, name string, err error) {
	var c struct {
		Type    string          `json:"type"`
		Name    string          `json:"name"`
		Plugins json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return "", "", conf.JSONError(err)
	}
	if c.Type == "" && c.Plugins != nil {
		if kind, own := firstOf(c.Plugins); conf.IsOVN(kind) {
			return kind, cmp.Or(c.Name, own), nil
		}
		return "conflist", c.Name, nil
	}
	if c.Type == "" {
		return "", "", conf.ErrNoType
	}
	return c.Type, c.Name, nil
}
