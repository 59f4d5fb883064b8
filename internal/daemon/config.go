package daemon

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
)

// Config is what the operator says in the file of --config. It can be carried out as it is.
type Config struct {
	Routers  map[string]*netmodel.Router // by their full names
	Physical netmodel.PhysicalGrants
}

// ConfigFile is the file of --config, which may change.
type ConfigFile struct {
	path    string // "": the flag is not given
	text    []byte // that counts
	invalid atomic.Bool
	after   func(time.Duration) <-chan time.Time
}

// An editor may empty a file before it writes it, and a file without routers withdraws them all: what the file says
// counts when it stays so for settleTime. Where the kernel does not tell of changes, they are found after followEvery.
const (
	settleTime  = time.Second
	followEvery = 5 * time.Second
)

// OpenConfig reads the file of --config; there is nothing in it if the flag is not given.
func OpenConfig(path string) (*ConfigFile, Config, error) {
	f := &ConfigFile{path: path, after: time.After}
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
func (f *ConfigFile) Register(registry prometheus.Registerer) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ovn_multinet_controller_config_invalid", Help: "Whether the file of --config cannot be carried out, so that what it said before counts.",
	}, func() float64 {
		if f.invalid.Load() {
			return 1
		}
		return 0
	}))
}

// Follow has each valid change of the file carried out, until the end of ctx. While the file is invalid, what it said
// before counts.
func (f *ConfigFile) Follow(ctx context.Context, log *slog.Logger, change func(Config)) error {
	if f.path == "" {
		return nil
	}
	// The folder: a mounted ConfigMap changes by a rename of the link ..data, and an editor renames a file too.
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(filepath.Dir(f.path))
	}
	if err != nil {
		log.Warn("the kernel does not tell of changes of --config: they are found a little later", "every", followEvery, "err", err)
	}
	if w == nil {
		w = &fsnotify.Watcher{} // it never tells of anything
	} else {
		defer w.Close()
	}
	again := time.NewTicker(followEvery)
	defer again.Stop()
	for said := ""; ; {
		config, news, err := f.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && err.Error() != said:
			said = err.Error()
			log.Error("the changed configuration is invalid, what it said before counts", "err", err)
		case err == nil && news:
			log.Info("the configuration has changed", "file", f.path)
			change(config)
		case err == nil && said != "":
			log.Info("the configuration is as before again", "file", f.path)
		}
		if err == nil {
			said = ""
		}
		f.invalid.Store(err != nil)
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
		case <-w.Errors: // events may be lost: the next look finds what they were of
		case <-again.C:
		}
	}
}

// look reads the file again; news: it says something else than what counts, and that counts from now on.
func (f *ConfigFile) look(ctx context.Context) (config Config, news bool, err error) {
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
			f.text, news = text, true
		}
		return config, news, err
	}
	return Config{}, false, err
}

func (f *ConfigFile) read() ([]byte, error) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return text, nil
}

func (f *ConfigFile) parse(text []byte) (Config, error) {
	config, err := parseConfig(text)
	if err != nil {
		return Config{}, fmt.Errorf("--config: %s: %w", f.path, err)
	}
	return config, nil
}

func parseConfig(text []byte) (c Config, err error) {
	object, err := configObject(text)
	if err != nil || object == nil {
		return Config{}, err
	}
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
	return c, nil
}

// configObject makes one JSON object of the YAML in the file of --config; nil when there is none in it.
func configObject(text []byte) ([]byte, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	if _, err := documents.Read(); err == nil {
		if _, err := documents.Read(); !errors.Is(err, io.EOF) {
			return nil, errors.New("it has several documents (---), where one is read")
		}
	}
	object, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " ")) // which may have lines
	}
	if string(object) == "null" { // nothing, or comments
		return nil, nil
	}
	return object, nil
}
