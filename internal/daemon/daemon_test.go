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
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/ovn-multinet/ovn-multinet/conf"
	"github.com/ovn-multinet/ovn-multinet/internal/program"
)

// flags are the flags that agent and controller share.
type flags struct {
	nb                    conf.NB
	kubeconfig, manifests string
	level, metrics        string
}

// command is a program with these flags that does nothing.
func (f *flags) command() *cobra.Command {
	cmd := &cobra.Command{Use: "test", RunE: func(*cobra.Command, []string) error { return nil }}
	NBFlags(cmd.Flags(), &f.nb)
	SourceFlags(cmd.Flags(), &f.kubeconfig, &f.manifests)
	CommonFlags(cmd.Flags(), &f.level, &f.metrics)
	return cmd
}

func (f *flags) String() string {
	return fmt.Sprintf("%v %s %s %s %v|%s %s|%s %s", f.nb.Endpoints, f.nb.Certificate, f.nb.PrivateKey, f.nb.CACert,
		f.nb.ServerNames, f.kubeconfig, f.manifests, f.level, f.metrics)
}

func TestFlags(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		args []string
		want string
		exit int
	}{
		{"defaults", nil, nil, "[]    []| |info ", 0},
		{"command line", nil, []string{"--nb-endpoints=ssl:a:1,ssl:b:1", "--nb-certificate=c", "--nb-private-key=k",
			"--nb-ca-cert=ca", "--nb-server-name=nb,nb2", "--kubeconfig=x", "--manifests=m", "--log-level=debug",
			"--metrics-address=:9"}, "[ssl:a:1 ssl:b:1] c k ca [nb nb2]|x m|debug :9", 0},
		{"environment", map[string]string{"NB_ENDPOINTS": "ssl:a:1,ssl:b:1", "NB_CERTIFICATE": "c", "NB_PRIVATE_KEY": "k",
			"NB_CA_CERT": "ca", "NB_SERVER_NAME": "nb,nb2", "KUBECONFIG": "x", "MANIFESTS": "m", "LOG_LEVEL": "debug",
			"METRICS_ADDRESS": ":9"}, nil, "[ssl:a:1 ssl:b:1] c k ca [nb nb2]|x m|debug :9", 0},
		{"the command line comes first", map[string]string{
			"LOG_LEVEL": "debug", "MANIFESTS": "m", "NB_ENDPOINTS": "tcp:a:1",
		},
			[]string{"--log-level=info", "--nb-endpoints=tcp:b:1"}, "[tcp:b:1]    []| m|info ", 0},
		{"an empty variable is a value", map[string]string{"LOG_LEVEL": ""}, nil, "[]    []| | ", 0},
		{"a value that is none", map[string]string{"NB_ENDPOINTS": `"`}, nil, "[]    []| |info ", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv("OVN_MULTINET_"+name, value)
			}
			var f flags
			cmd := f.command()
			cmd.SetArgs(append([]string{}, tt.args...))
			if exit := program.Main(cmd); f.String() != tt.want || exit != tt.exit {
				t.Errorf("got  %s, exit code %d\nwant %s, exit code %d", &f, exit, tt.want, tt.exit)
			}
		})
	}
}

// freeAddress returns an address on which no process listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestServeOnSocket: a program beside the process reads the metrics at a socket, and at an address without a host. The
// socket of an earlier process is replaced.
func TestServeOnSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "metrics.sock")
	left, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	left.Close()
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"unix:" + socket, ":" + port} {
		registry := prometheus.NewRegistry()
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "answer"}, func() float64 { return 42 }))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, address, registry, nil) }()
		var body strings.Builder
		for err := errors.New("not yet"); err != nil && t.Context().Err() == nil; {
			body.Reset()
			err = CopyMetrics(ctx, address, &body)
		}
		if !strings.Contains(body.String(), "\nanswer 42\n") {
			t.Errorf("at %s: %q", address, &body)
		}
		if err := Alive(ctx, address); err != nil {
			t.Errorf("at %s: %v", address, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := Alive(t.Context(), address); err == nil {
			t.Errorf("at %s nobody serves, and somebody is alive", address)
		}
	}
	if err := CopyMetrics(t.Context(), "", io.Discard); err == nil || !strings.HasPrefix(err.Error(), "--metrics-address is empty") {
		t.Errorf("without an address: %v", err)
	}
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

// /readyz answers the reason why a controller is not ready.
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

// get returns the metrics, or "" if no process listens.
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
	_, err := OpenNB(conf.NB{
		Endpoints: []string{"ssl:127.0.0.1:1"}, Certificate: "/none/c", PrivateKey: "/none/k", CACert: "/none/ca",
	},
		nil, slog.New(slog.DiscardHandler))
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
