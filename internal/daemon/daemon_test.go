package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// flags are those that agent and controller share.
type flags struct {
	nb                    conf.NB
	kubeconfig, manifests string
	level, metrics        string
}

func (f *flags) set() *pflag.FlagSet {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	NBFlags(set, &f.nb)
	SourceFlags(set, &f.kubeconfig, &f.manifests)
	CommonFlags(set, &f.level, &f.metrics)
	return set
}

func (f *flags) String() string {
	return fmt.Sprintf("%v %s %s %s %v|%s %s|%s %s", f.nb.Endpoints, f.nb.Certificate, f.nb.PrivateKey, f.nb.CACert, f.nb.ServerNames, f.kubeconfig, f.manifests, f.level, f.metrics)
}

func TestFlags(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		args []string
		want string
		fail string
	}{
		{"defaults", nil, nil, "[]    []| |info ", ""},
		{"command line", nil, []string{"--nb-endpoints=ssl:a:1,ssl:b:1", "--nb-certificate=c", "--nb-private-key=k", "--nb-ca-cert=ca", "--nb-server-name=nb,nb2", "--kubeconfig=x",
			"--manifests=m", "--log-level=debug", "--metrics-address=:9"}, "[ssl:a:1 ssl:b:1] c k ca [nb nb2]|x m|debug :9", ""},
		{"environment", map[string]string{"OVN_MULTINET_NB_ENDPOINTS": "ssl:a:1,ssl:b:1", "OVN_MULTINET_NB_CERTIFICATE": "c", "OVN_MULTINET_NB_PRIVATE_KEY": "k",
			"OVN_MULTINET_NB_CA_CERT": "ca", "OVN_MULTINET_NB_SERVER_NAME": "nb,nb2", "OVN_MULTINET_KUBECONFIG": "x", "OVN_MULTINET_MANIFESTS": "m", "OVN_MULTINET_LOG_LEVEL": "debug",
			"OVN_MULTINET_METRICS_ADDRESS": ":9"}, nil, "[ssl:a:1 ssl:b:1] c k ca [nb nb2]|x m|debug :9", ""},
		{"the command line comes first", map[string]string{"OVN_MULTINET_LOG_LEVEL": "debug", "OVN_MULTINET_MANIFESTS": "m", "OVN_MULTINET_NB_ENDPOINTS": "tcp:a:1"},
			[]string{"--log-level=info", "--nb-endpoints=tcp:b:1"}, "[tcp:b:1]    []| m|info ", ""},
		{"an empty variable is a value", map[string]string{"OVN_MULTINET_LOG_LEVEL": ""}, nil, "[]    []| | ", ""},
		{"a value that is none", map[string]string{"OVN_MULTINET_NB_ENDPOINTS": `"`}, nil, "[]    []| |info ",
			`OVN_MULTINET_NB_ENDPOINTS: invalid argument "\"" for "--nb-endpoints" flag: parse error on line 1, column 2: extraneous or missing " in quoted-field`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			var f flags
			set := f.set()
			if err := set.Parse(tt.args); err != nil {
				t.Fatal(err)
			}
			fail := ""
			if err := fromEnvironment(set); err != nil {
				fail = err.Error()
			}
			if f.String() != tt.want || fail != tt.fail {
				t.Errorf("got  %s %s\nwant %s %s", &f, fail, tt.want, tt.fail)
			}
		})
	}
}

// runMain runs Main with arguments and returns its exit code and what it writes to standard error.
func runMain(t *testing.T, run func(context.Context) error, args ...string) (code int, stderr string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	old := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = old }()
	cmd := &cobra.Command{Use: "prog", RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) }}
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	code = Main(cmd)
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(text)
}

func TestMainExits(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		err    error
		code   int
		stderr string
	}{
		{"fine", nil, nil, 0, ""},
		{"failed: one line", nil, errors.New("--bridge is empty"), 1, "prog: --bridge is empty\n"},
		{"unknown flag", []string{"--colour"}, nil, 1, "prog: unknown flag: --colour\n"},
		{"a word too many", []string{"word"}, nil, 1, "prog: unknown command \"word\" for \"prog\"\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if code, stderr := runMain(t, func(context.Context) error { return tt.err }, tt.args...); code != tt.code || stderr != tt.stderr {
				t.Errorf("got  %d %q\nwant %d %q", code, stderr, tt.code, tt.stderr)
			}
		})
	}
}

func TestMainEndsBySignal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			code, stderr := runMain(t, func(ctx context.Context) error {
				if err := syscall.Kill(os.Getpid(), sig); err != nil {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(2 * time.Minute):
					return errors.New("still running")
				}
			})
			if code != 0 || stderr != "" {
				t.Errorf("%d %q", code, stderr)
			}
		})
	}
}

func TestLogger(t *testing.T) {
	for _, level := range conf.LogLevels {
		var want slog.Level
		if err := want.UnmarshalText([]byte(level)); err != nil {
			t.Fatal(err)
		}
		log := Logger(level)
		if !log.Enabled(context.Background(), want) || log.Enabled(context.Background(), want-1) {
			t.Errorf("level %s: the log does not begin there", level)
		}
	}
}

// freeAddress is one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestServe(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "answer"}, func() float64 { return 42 }))
	address := freeAddress(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, address, registry, nil) }()
	body := ""
	for deadline := time.Now().Add(2 * time.Minute); body == ""; {
		if time.Now().After(deadline) {
			t.Fatal("nothing is served")
		}
		body = get(t, address)
	}
	if !strings.Contains(body, "\nanswer 42\n") {
		t.Errorf("served %q", body)
	}
	if err := Serve(ctx, address, registry, nil); err == nil || !strings.HasPrefix(err.Error(), "--metrics-address: listen tcp "+address) {
		t.Errorf("a second one there: %v", err)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("it does not end")
	}
	if body := get(t, address); body != "" {
		t.Errorf("after the end: %q", body)
	}
}

// What a controller waits for is told where its readiness is asked for.
func TestBoundaryServeReadiness(t *testing.T) {
	address := freeAddress(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var why atomic.Pointer[error]
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "answer"}))
	go func() {
		done <- Serve(ctx, address, registry, func() error {
			if err := why.Load(); err != nil {
				return *err
			}
			return nil
		})
	}()
	for deadline := time.Now().Add(2 * time.Minute); get(t, address) == ""; {
		if time.Now().After(deadline) {
			t.Fatal("nothing is served")
		}
	}
	standingBy := errors.New("NB belongs to cluster a")
	for want, err := range map[string]*error{"200 OK ok": nil, "503 Service Unavailable NB belongs to cluster a": &standingBy} {
		why.Store(err)
		response, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if got := response.Status + " " + strings.TrimSpace(string(text)); err != nil || got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
		_ = response.Body.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// get returns the metrics, "" when nobody listens.
func get(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", response.Status, err)
	}
	return string(text)
}

func TestServeWithoutAnAddress(t *testing.T) {
	if err := Serve(context.Background(), "", nil, nil); err != nil {
		t.Error(err)
	}
}

func TestOpenNBNamesTheFlags(t *testing.T) {
	_, err := OpenNB(conf.NB{Endpoints: []string{"ssl:127.0.0.1:1"}, Certificate: "/none/c", PrivateKey: "/none/k", CACert: "/none/ca"}, nil, slog.New(slog.DiscardHandler))
	if err == nil || !strings.HasPrefix(err.Error(), "--nb-certificate, --nb-private-key, --nb-ca-cert: ") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestKubernetesNamesTheFlag(t *testing.T) {
	_, _, err := Kubernetes(filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.HasPrefix(err.Error(), "--kubeconfig: ") {
		t.Errorf("%v", err)
	}
}

// Errors in a log may hold what tenants wrote: a value has a bound, and no line's end.
func TestBoundaryLogValuesAreShort(t *testing.T) {
	long := strings.Repeat("x\n", 1<<20)
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: shortAttr}))
	log.Warn("not in step yet", "err", errors.New(long), "nad", long, "n", 7, "short", "y")
	if text := out.String(); len(text) > 4*maxAttr || strings.Count(text, "\n") != 1 || !strings.Contains(text, " n=7 short=y") {
		t.Errorf("a line of %d bytes with %d ends: …%q", len(text), strings.Count(text, "\n"), text[max(0, len(text)-100):])
	}
}
