package sysdump

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestLogs: the end of a log is kept and not its beginning, and a log that is not whole says so.
func TestLogs(t *testing.T) {
	var many strings.Builder
	for i := range 12 {
		fmt.Fprintf(&many, "line %02d\n", i)
	}
	const short = "(sysdump: earlier lines are not in this file: it has the last 10 lines, and of these the last 100 " +
		"bytes)\n"
	long := strings.Repeat("x", 60) + "\n" + strings.Repeat("y", 60) + "\n"
	for _, tt := range []struct {
		name, log, want string
		short           bool
	}{
		{"whole", "one\ntwo\n", "one\ntwo\n", false},
		{"without its last end of line", "one\ntwo", "one\ntwo", false},
		{"as long as may be", strings.Repeat("line\n", 10), strings.Repeat("line\n", 10), false},
		{"more lines", many.String(), short + many.String()[2*len("line 00\n"):], true},
		{"longer lines", long, short + long[61:], true},
		{"one very long line", "first\n" + strings.Repeat("x", 1000) + "the last words",
			short + strings.Repeat("x", 86) + "the last words", true},
		{"nothing", "", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.most.logLines, w.most.logBytes = 10, 100
			w.add(podsPath, agentPod)
			w.logs["agent-a/agent"] = tt.log
			result, files := w.write()
			if got := files["logs/agent-a/agent.log"]; got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			said := strings.Contains(files["omitted.txt"], "logs/agent-a/agent.log: lines before the last 10,")
			if said != tt.short || result.Missing > 0 {
				t.Errorf("%s\nmissing: %s", files["omitted.txt"], files[MissingFile])
			}
		})
	}
}

// TestTail: the last bytes are kept, in whatever pieces a log comes, and not more than twice as many are in memory.
func TestTail(t *testing.T) {
	var log strings.Builder
	for i := range 200 {
		fmt.Fprintf(&log, "%04d\n", i)
	}
	for _, size := range []int{1, 7, 50, 51, 1000} {
		end := &tail{most: 52}
		for text := []byte(log.String()); len(text) > 0; {
			n, err := end.Write(text[:min(size, len(text))])
			if err != nil || len(end.text) > 104 {
				t.Fatal(err, len(end.text))
			}
			text = text[n:]
		}
		text, short := end.lines(100)
		if want := log.String()[950:]; string(text) != want || !short {
			t.Errorf("pieces of %d: %q, short %t; want %q", size, text, short, want)
		}
	}
}

// TestLastWords: the API is asked for the last lines. Its limit of bytes would keep the first ones.
func TestLastWords(t *testing.T) {
	w := newWorld(t)
	w.most.logLines, w.most.logBytes = 10, 100
	w.add(podsPath, agentPod)
	w.logs["agent-a/agent"] = strings.Repeat("long ago\n", 1000) + strings.Repeat("x", 200) + "\nthe last words\n"
	_, files := w.write()
	text := files["logs/agent-a/agent.log"]
	if !strings.HasSuffix(text, "\nthe last words\n") || strings.Contains(text, "ago") {
		t.Errorf("%q", text)
	}
	if !slices.ContainsFunc(w.requests, func(r string) bool { return strings.Contains(r, "tailLines=11") }) {
		t.Errorf("the whole log was asked for: %q", w.requests)
	}
}

// TestOrderOfLogs: where something is wrong comes first, and a node that does not answer comes last.
func TestOrderOfLogs(t *testing.T) {
	var pods []*ownPod
	for _, p := range []struct {
		node     string
		ready    bool
		restarts int32
	}{{"a", true, 0}, {"b", false, 0}, {"c", false, 0}, {"d", true, 1}, {"e", true, 0}} {
		pod := &ownPod{}
		pod.Metadata.Labels, pod.Spec.NodeName = map[string]string{"app": "ovn-multinet-agent"}, p.node
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agent", Ready: p.ready, RestartCount: p.restarts}}
		pods = append(pods, pod)
	}
	var got []string
	for _, n := range (&collector{}).logs(pods, map[string]bool{"b": true}) {
		got = append(got, n.node)
	}
	if want := "c d a e b"; strings.Join(got, " ") != want {
		t.Errorf("the order is %q, want %s", got, want)
	}
}

// TestWhichLogs: the logs of the chart's containers alone, also those before their last start, and none that cannot
// exist.
func TestWhichLogs(t *testing.T) {
	w := newWorld(t)
	for _, pod := range []string{
		`"name":"a","labels":{"app":"ovn-multinet-agent"}},"spec":{"nodeName":"n"},"status":{"containerStatuses":[
			{"name":"agent","containerID":"2","restartCount":1,"state":{"running":{}},
				"lastState":{"terminated":{"containerID":"1"}}},
			{"name":"installer","containerID":"1","state":{"waiting":{"reason":"CrashLoopBackOff"}},
				"lastState":{"terminated":{"containerID":"1"}}},
			{"name":"proxy","containerID":"1","state":{"running":{}}}]}`,
		`"name":"starts","labels":{"app":"ovn-multinet-controller"}},"spec":{"nodeName":"n"},"status":{"containerStatuses":[
			{"name":"controller","state":{"waiting":{"reason":"ContainerCreating"}}}]}`,
		`"name":"waits","labels":{"app":"ovn-multinet-controller"}},"spec":{},"status":{}`,
		`"name":"stranger","labels":{"app":"web"}},"spec":{"nodeName":"n"},"status":{"containerStatuses":[
			{"name":"agent","containerID":"1","state":{"running":{}}}]}`,
	} {
		w.add(podsPath, `{"metadata":{`+pod+`}`)
	}
	for _, log := range []string{"a/agent", "a/agent/previous", "a/installer", "a/installer/previous", "a/proxy",
		"starts/controller", "stranger/agent"} {
		w.logs[log] = log
	}
	result, files := w.write()
	var got []string
	for _, name := range []string{"a/agent.log", "a/agent.previous.log", "a/installer.log", "a/installer.previous.log",
		"a/proxy.log", "starts/controller.log", "stranger/agent.log"} {
		if text := files["logs/"+name]; text != "" {
			got = append(got, name+"="+text)
		}
	}
	const want = "a/agent.log=a/agent a/agent.previous.log=a/agent/previous a/installer.log=a/installer"
	if strings.Join(got, " ") != want || result.Missing > 0 {
		t.Errorf("got  %q\nwant %q\nmissing: %s", got, want, files[MissingFile])
	}
	has(t, "omitted.txt", files["omitted.txt"], "the log of container proxy of pod a: the chart has no such container",
		"the log of container agent of pod stranger")
}

// TestLogEndsEarly: what came of a log is kept, and the rest is listed.
func TestLogEndsEarly(t *testing.T) {
	w := newWorld(t)
	w.add(podsPath, agentPod)
	w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/log") {
			return false
		}
		rw.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(rw, "the beginning\n")
		return true
	}
	w.cuts = true
	_, files := w.write()
	if files["logs/agent-a/agent.log"] != "the beginning\n" {
		t.Errorf("%q", files["logs/agent-a/agent.log"])
	}
	if files[MissingFile] != "logs/agent-a/agent.log: the rest is missing: unexpected EOF\n" {
		t.Errorf("missing: %s", files[MissingFile])
	}
}
