//go:build kube

package scenarios

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// sysdump collects an archive of a healthy installation: nothing is missing, and nothing of what a Secret, a ConfigMap and
// a pod have in confidence is in it.
func (w *world) sysdump() {
	w.T.Helper()
	const marker = "KEY-MARKER-1"
	_, err := w.Kubectl(w.Ctx, "--namespace", ours, "create", "secret", "generic", "marked", "--save-config", "--from-literal=key="+marker)
	w.Must(err)
	_, err = w.Kubectl(w.Ctx, "--namespace", ours, "create", "configmap", "marked", "--save-config", "--from-literal=key="+marker)
	w.Must(err)
	const policy = `apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata: {name: archived, namespace: default, annotations: {k8s.v1.cni.cncf.io/policy-for: nothing}}
spec: {podSelector: {matchLabels: {app: nobody}}}
`
	w.Must(w.Apply(w.Ctx, policy))
	file := filepath.Join(w.T.TempDir(), "sysdump.tar.gz")
	if out, err := w.Multinet(w.Ctx, "sysdump", "-o", file); err != nil || !strings.Contains(out, "nothing is missing") {
		w.T.Errorf("%v: %s\n%s", err, out, w.archive(file)["missing.txt"])
	}
	files := w.archive(file)
	for _, name := range []string{
		"installation/pods.json", "installation/secrets.json", "objects/networks.json", "objects/pods.json",
		"commands/status.txt", "commands/check.txt", "ovn/nb-show.txt", "ovn/sb-show.txt", "ovn/members.txt",
	} {
		if files[name] == "" {
			w.T.Errorf("the archive has no %s", name)
		}
	}
	coded := base64.StdEncoding.EncodeToString([]byte(marker))
	for name, text := range files {
		if strings.Contains(text, marker) || strings.Contains(text, coded) {
			w.T.Errorf("%s has what is a secret", name)
		}
	}
	if !strings.Contains(files["installation/secrets.json"], `"marked"`) {
		w.T.Error("the archive does not name the Secret")
	}
	if !strings.Contains(files["objects/policies.json"], `"archived"`) {
		w.T.Error("the archive has no policy")
	}
	w.Must(w.Delete(w.Ctx, policy))
	w.kubectl("--namespace", ours, "delete", "secret/marked", "configmap/marked")
}

// archive has the files of an archive by their names below its folder.
func (w *world) archive(path string) map[string]string {
	w.T.Helper()
	text, err := os.ReadFile(path)
	w.Must(err)
	unzipped, err := gzip.NewReader(bytes.NewReader(text))
	w.Must(err)
	files := map[string]string{}
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		w.Must(err)
		content, err := io.ReadAll(reader)
		w.Must(err)
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(content)
	}
}
