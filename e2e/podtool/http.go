package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dsnet/try"
)

func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	port := flags.Int("port", 8080, "where to listen")
	_ = flags.Parse(args)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /hostname", func(w http.ResponseWriter, _ *http.Request) {
		name, err := os.Hostname()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, name)
	})
	mux.HandleFunc("GET /client", func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintln(w, host)
	})
	mux.HandleFunc("GET /ip", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := writeNetwork(w); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	// As process 1 of its container it would not be ended by SIGTERM unhandled.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	server := &http.Server{Addr: fmt.Sprintf(":%d", *port), Handler: mux}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

const patience = 5 * time.Second

func get(args []string) error {
	flags := flag.NewFlagSet("get", flag.ExitOnError)
	network := flags.String("network", "tcp", "tcp4 or tcp6: by that family alone")
	_ = flags.Parse(args)
	if flags.NArg() != 1 {
		return errors.New("wants one URL")
	}
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, *network, address)
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: dial}}
	return printAnswer(client, flags.Arg(0), "")
}

// serviceAccount is where kubelet puts what a pod needs to reach the API server.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

func api(args []string) (err error) {
	defer try.Handle(&err)
	if len(args) != 1 || !strings.HasPrefix(args[0], "/") {
		return errors.New("wants one path, such as /version")
	}
	token := try.E1(os.ReadFile(filepath.Join(serviceAccount, "token")))
	ca := try.E1(os.ReadFile(filepath.Join(serviceAccount, "ca.crt")))
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("no certificate is in ca.crt")
	}
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	client := &http.Client{
		Timeout:   patience,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	return printAnswer(client, "https://"+host+args[0], strings.TrimSpace(string(token)))
}

func printAnswer(client *http.Client, url, token string) (err error) {
	defer try.Handle(&err)
	request := try.E1(http.NewRequest(http.MethodGet, url, nil))
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer := try.E1(client.Do(request))
	defer answer.Body.Close()
	try.E1(io.Copy(os.Stdout, answer.Body))
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}
