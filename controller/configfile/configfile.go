// Package configfile owns the file of the controller's flag --config: reading the file, and following its changes.
// What the keys mean is in package netmodel.
package configfile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
	"github.com/ovn-multinet/ovn-multinet/netmodel/cost"
)

// Config is the content of the file, valid as a whole.
type Config struct {
	Document []byte                      // the same in JSON; nil: the file is empty, or there is none
	Routers  map[string]*netmodel.Router // by their full names
	Physical netmodel.PhysicalGrants
	Profiles netmodel.SecurityProfiles
	Limits   cost.Limits
	Uplinks  netmodel.Uplinks // only of objects
}

// Tagged reports whether networks or gateways may be on VLANs of a physical network.
func (c *Config) Tagged(physical string) bool {
	for _, r := range c.Routers {
		if r.Physical == physical && r.VLAN != 0 {
			return true
		}
	}
	return c.Physical.Tagged(physical)
}

// File is the file, whose content may change.
type File struct {
	path    string // "": the flag is not given
	text    []byte // the last valid content
	invalid atomic.Bool
	after   func(time.Duration) <-chan time.Time
}

// An editor may empty a file before it writes the file, and a file without routers withdraws all routers. Therefore a
// new content is accepted only if it stays the same for settleTime. The file is also read every followEvery, in case
// that inotify is not available or loses events.
const (
	settleTime  = time.Second
	followEvery = 5 * time.Second
)

// Open reads the file. If path is empty, the flag is not given and the Config is empty.
func Open(path string) (*File, Config, error) {
	f := &File{path: path, after: time.After}
	if path == "" {
		return f, Config{}, nil
	}
	text, err := f.read()
	if err != nil {
		return nil, Config{}, err
	}
	config, err := f.parse(text)
	if err != nil {
		return nil, Config{}, err
	}
	f.text = text
	return f, config, nil
}

// Register adds the metric of the file to a registry.
func (f *File) Register(registry prometheus.Registerer) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ovn_multinet_controller_config_invalid",
		Help: "Whether the file of --config is invalid, so that the controller keeps the last valid configuration.",
	}, func() float64 {
		if f.invalid.Load() {
			return 1
		}
		return 0
	}))
}

// Follow calls change with each new valid content of the file, until the end of ctx. While the file is invalid, the
// last valid content stays.
func (f *File) Follow(ctx context.Context, log *slog.Logger, change func(Config)) error {
	if f.path == "" {
		return nil
	}
	w, stop := f.watch(log)
	defer stop()
	again := time.NewTicker(followEvery)
	defer again.Stop()
	for said := ""; ; {
		config, changed, err := f.update(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && err.Error() != said:
			said = err.Error()
			log.Error("the changed configuration is invalid, keeping the last valid one", "err", err)
		case err == nil && changed:
			log.Info("the configuration has changed", "file", f.path)
			change(config)
		case err == nil && said != "":
			log.Info("the configuration is the last valid one again", "file", f.path)
		}
		if err == nil {
			said = ""
		}
		f.invalid.Store(err != nil)
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
		case <-w.Errors: // inotify may have lost events: read the file again
		case <-again.C:
		}
	}
}

// watch watches the folder of the file: a mounted ConfigMap changes by a rename of the link ..data, and an editor
// renames a file too. If inotify is not available, the watcher reports nothing.
func (f *File) watch(log *slog.Logger) (w *fsnotify.Watcher, stop func()) {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		stop = func() { _ = w.Close() }
		err = w.Add(filepath.Dir(f.path))
	} else {
		w, stop = &fsnotify.Watcher{}, func() {}
	}
	if err != nil {
		log.Warn("cannot watch the file of --config, reading it periodically", "every", followEvery, "err", err)
	}
	return w, stop
}

// update reads the file again. changed means that the file has a new valid content, which update has accepted.
func (f *File) update(ctx context.Context) (config Config, changed bool, err error) {
	text, err := f.read()
	for err == nil && !bytes.Equal(text, f.text) {
		select {
		case <-ctx.Done():
			return Config{}, false, ctx.Err()
		case <-f.after(settleTime):
		}
		before := text
		if text, err = f.read(); err != nil || !bytes.Equal(text, before) {
			continue
		}
		if config, err = f.parse(text); err == nil {
			f.text, changed = text, true
		}
		return config, changed, err
	}
	return Config{}, false, err
}

func (f *File) read() ([]byte, error) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return text, nil
}

func (f *File) parse(text []byte) (Config, error) {
	config, err := Read(text)
	if err != nil {
		return Config{}, fmt.Errorf("--config: %s: %w", f.path, err)
	}
	return config, nil
}

// Read reads the text of a file, in YAML.
func Read(text []byte) (c Config, err error) {
	object, err := configObject(text)
	if err != nil || object == nil {
		return Config{}, err
	}
	if c, err = Parse(object); err == nil && len(c.Uplinks) > 0 {
		return Config{}, errors.New("uplinks: write them into objects PhysicalNetwork")
	}
	return c, err
}

// Parse parses the content of a file, in JSON.
func Parse(object []byte) (c Config, err error) {
	c.Document = object
	if c.Routers, err = netmodel.ParseRouters(object); err != nil {
		return Config{}, err
	}
	for name, r := range c.Routers {
		if _, err := labels.Parse(r.Nodes); err != nil {
			return Config{}, fmt.Errorf("router %s: gatewayNodes: %w", name, err)
		}
	}
	if c.Physical, err = netmodel.ParsePhysicalGrants(object); err != nil {
		return Config{}, err
	}
	if c.Profiles, err = netmodel.ParseSecurityProfiles(object); err != nil {
		return Config{}, err
	}
	if c.Uplinks, err = netmodel.ParseUplinks(object); err != nil {
		return Config{}, err
	}
	for _, list := range c.Uplinks {
		for _, uplink := range list {
			if _, err := labels.Parse(uplink.Nodes); err != nil {
				return Config{}, fmt.Errorf("uplinks: nodes: %w", err)
			}
		}
	}
	c.Limits, err = netmodel.ParseLimits(object)
	return c, err
}

// configObject converts the YAML of the file into one JSON object. The result is nil if the file is empty.
func configObject(text []byte) ([]byte, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	if _, err := documents.Read(); err == nil {
		if _, err := documents.Read(); !errors.Is(err, io.EOF) {
			return nil, errors.New("the file has several documents (---), only one is allowed")
		}
	}
	object, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " ")) // the error may have several lines
	}
	if string(object) == "null" { // the file is empty or has only comments
		return nil, nil
	}
	return object, nil
}
