package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns a registry with the usual metrics of a process in Go: go_* and process_*.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Serve serves the metrics at /metrics until the end of ctx. The address is HOST:PORT or unix:PATH. Without an address,
// Serve returns at once. The path /readyz answers 200 if ready returns nil, otherwise 503 with the error. A nil ready
// means: always ready. The path /livez answers 200 as long as the process serves requests.
func Serve(ctx context.Context, address string, registry *prometheus.Registry, ready func() error) error {
	if address == "" {
		return nil
	}
	network, address := listenAddress(address)
	if network == "unix" {
		_ = os.Remove(address) // of an earlier process; Listen says what is wrong with another file
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return fmt.Errorf("--metrics-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ready != nil {
			if err := ready(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listenAddress takes the address of --metrics-address apart.
func listenAddress(address string) (network, rest string) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return "unix", path
	}
	return "tcp", address
}

// CopyMetrics writes the metrics of the process that serves them at an address of this host.
func CopyMetrics(ctx context.Context, address string, out io.Writer) error {
	return askLocal(ctx, address, "/metrics", out)
}

// Alive asks the process that serves metrics at an address of this host whether it serves requests.
func Alive(ctx context.Context, address string) error {
	return askLocal(ctx, address, "/livez", io.Discard)
}

func askLocal(ctx context.Context, address, path string, out io.Writer) error {
	if address == "" {
		return errors.New("--metrics-address is empty: the process serves no metrics")
	}
	network, address := listenAddress(address)
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, address) // without a host, the address is this host's
		}, DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, answer.Status)
	}
	_, err = io.Copy(out, answer.Body)
	return err
}
