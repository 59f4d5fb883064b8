package ovndbtest

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

func insertSwitch(name string) Op {
	return Op{"op": "insert", "table": "Logical_Switch", "row": Op{
		"name": name, "external_ids": Map(map[string]string{"a": "1", "b": "2"})}}
}

func names(rows []map[string]any) []string {
	var out []string
	for _, row := range rows {
		out = append(out, row["name"].(string))
	}
	slices.Sort(out)
	return out
}

func TestServerKeepsRowsOverRestart(t *testing.T) {
	s := StartNB(t)
	s.Transact(t, insertSwitch("one"))
	s.NBCtl("ls-add", "two")
	pid := s.pid
	s.Restart()
	if s.pid == pid {
		t.Fatalf("the restarted server has the pid of the old one, %d", pid)
	}
	if got, want := names(s.Dump(t, "Logical_Switch")), []string{"one", "two"}; !slices.Equal(got, want) {
		t.Fatalf("switches %q, want %q", got, want)
	}
	if got := strings.Count(s.NBCtl("ls-list"), "\n"); got != 2 {
		t.Fatalf("ovn-nbctl lists %d switches, want 2", got)
	}
	for _, row := range s.Dump(t, "Logical_Switch") {
		if ids, ok := row["external_ids"].(map[string]string); !ok || row["name"] == "one" && ids["b"] != "2" {
			t.Errorf("external_ids of %v: %v", row["name"], row["external_ids"])
		}
	}
}

func TestPausedServerAnswersAfterResume(t *testing.T) {
	s := StartNB(t)
	s.Pause()
	conn, err := net.Dial("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(`{"method":"list_dbs","params":[],"id":1}`)); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	b := make([]byte, 100)
	if n, err := conn.Read(b); err == nil {
		t.Fatalf("the paused server answered %q", b[:n])
	}
	s.Resume()
	_ = conn.SetReadDeadline(time.Now().Add(startTimeout))
	if _, err := conn.Read(b); err != nil {
		t.Fatalf("after Resume: %v", err)
	}
}

func TestOVSHasItsRootRow(t *testing.T) {
	s := StartOVS(t)
	s.VSCtl("add-br", "br-int")
	if got := names(s.Dump(t, "Bridge")); !slices.Equal(got, []string{"br-int"}) {
		t.Fatalf("bridges %q", got)
	}
}

func TestProxyCounts(t *testing.T) {
	s := StartNB(t)
	p := StartProxy(t, s.Endpoint())
	write := insertSwitch("x")
	read := Op{"op": "select", "table": "Logical_Switch", "where": []any{}}
	no := Op{"op": "wait", "table": "Logical_Switch", "timeout": 0, "where": []any{}, "columns": []string{"name"}, "until": "==", "rows": []any{}}
	var order []int
	p.Before(func(tx Transact) { order = append(order, tx.N, len(tx.Ops)) })
	for _, tx := range [][]Op{{write}, {read}, {read, write}, {no, write}, {no}} {
		_, _ = transact(p.Socket, "OVN_Northbound", tx)
	}
	got := p.Counts()
	if got.Committed != 2 || got.ReadOnly != 1 || got.Refused != 2 || got.Received == 0 {
		t.Errorf("counts %+v, want 2 committed, 1 read-only, 2 refused", got)
	}
	if want := []int{1, 1, 2, 1, 3, 2, 4, 2, 5, 1}; !slices.Equal(order, want) {
		t.Errorf("transactions seen %v, want %v", order, want)
	}
	p.Reset()
	if got := p.Counts(); got != (Counts{}) {
		t.Errorf("after Reset %+v", got)
	}
	p.Ignore(func(tx Transact) bool { return !tx.Writes })
	for _, tx := range [][]Op{{read}, nil} { // nil: a probe
		_, _ = transact(p.Socket, "OVN_Northbound", tx)
	}
	if got := p.Counts(); got != (Counts{}) {
		t.Errorf("counts %+v after an ignored read and a probe", got)
	}
	_, _ = transact(p.Socket, "OVN_Northbound", []Op{insertSwitch("y")})
	if got := p.Counts(); got.ReadOnly != 0 || got.Committed != 1 {
		t.Errorf("counts %+v, want none read-only and 1 committed", got)
	}
}

func TestProxyCuts(t *testing.T) {
	tests := []struct {
		name    string
		arm     func(*Proxy)
		want    int // switches afterwards
		counted int
	}{
		{"before", (*Proxy).CutBeforeNext, 0, 0},
		{"reply", (*Proxy).DropNextReply, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := StartNB(t)
			p := StartProxy(t, s.Endpoint())
			tt.arm(p)
			if _, err := transact(p.Socket, "OVN_Northbound", []Op{{"op": "select", "table": "Logical_Switch", "where": []any{}}}); err != nil {
				t.Fatalf("a read was cut: %v", err)
			}
			if _, err := transact(p.Socket, "OVN_Northbound", []Op{insertSwitch("x")}); err == nil {
				t.Fatal("the answer arrived")
			}
			if got := len(s.Dump(t, "Logical_Switch")); got != tt.want {
				t.Errorf("%d switches, want %d", got, tt.want)
			}
			if got := p.Counts().Committed; got != tt.counted {
				t.Errorf("%d committed, want %d", got, tt.counted)
			}
			if _, err := transact(p.Socket, "OVN_Northbound", []Op{insertSwitch("y")}); err != nil {
				t.Errorf("the one after it: %v", err)
			}
		})
	}
}

func TestClusterElectsAnother(t *testing.T) {
	c := StartNBCluster(t, 3)
	first := c.Leader()
	first.Transact(t, insertSwitch("one"))
	first.Kill()
	second := c.Leader()
	if second == first {
		t.Fatal("the dead member is the leader")
	}
	if got := names(second.Dump(t, "Logical_Switch")); !slices.Equal(got, []string{"one"}) {
		t.Fatalf("switches %q at the new leader", got)
	}
	first.Restart()
	first.until("has joined again", func() bool { return first.status().connected })
}
