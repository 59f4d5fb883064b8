package nodefacts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// OVS is the node's Open vSwitch, as its database says.
type OVS struct {
	Socket    string            `json:"socket"`
	Error     string            `json:"error,omitempty"` // why the database does not answer
	Version   string            `json:"version,omitempty"`
	Datapaths []string          `json:"datapaths,omitempty"` // "system" is the kernel's, "netdev" the userspace one
	OVN       map[string]string `json:"ovn,omitempty"`       // external_ids of OVN, such as ovn-remote
	Bridges   []string          `json:"bridges,omitempty"`   // names
	Userspace []string          `json:"userspace,omitempty"` // of Bridges, those with the userspace datapath
	SystemID  string            `json:"systemID,omitempty"`  // the name of the chassis
}

// patience is the time for a database to answer.
const patience = 3 * time.Second

// query selects what OVS has, in one read-only transaction (RFC 7047, section 4.1.3).
const query = `{"method":"transact","id":0,"params":["Open_vSwitch",
	{"op":"select","table":"Open_vSwitch","where":[],"columns":["ovs_version","external_ids","datapath_types"]},
	{"op":"select","table":"Bridge","where":[],"columns":["name","datapath_type"]}]}`

type row map[string]any

// readOVS asks the database on the socket.
func readOVS(ctx context.Context, node root, socket string) OVS {
	o := OVS{Socket: socket}
	tables, err := selectOVS(ctx, node, socket)
	if err != nil {
		o.Error = strings.ReplaceAll(err.Error(), string(node)+"/", "/")
		return o
	}
	for _, r := range tables[0] {
		o.Version, _ = r["ovs_version"].(string)
		o.Datapaths = set(r["datapath_types"])
		ids := mapOf(r["external_ids"])
		o.SystemID, o.OVN = ids["system-id"], map[string]string{}
		for key, value := range ids {
			if strings.HasPrefix(key, "ovn-") {
				o.OVN[key] = value
			}
		}
	}
	for _, r := range tables[1] {
		name, _ := r["name"].(string)
		o.Bridges = append(o.Bridges, name)
		if r["datapath_type"] == "netdev" {
			o.Userspace = append(o.Userspace, name)
		}
	}
	slices.Sort(o.Bridges)
	slices.Sort(o.Userspace)
	return o
}

func selectOVS(ctx context.Context, node root, socket string) (tables [2][]row, err error) {
	here, _, err := node.path(socket)
	if err != nil {
		return tables, err
	}
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "unix", here)
	if err != nil {
		return tables, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return tables, err
	}
	if _, err := conn.Write([]byte(query)); err != nil {
		return tables, err
	}
	var reply struct {
		Error  any
		Result []struct {
			Rows  []row
			Error string
		}
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return tables, err
	}
	if reply.Error != nil {
		return tables, fmt.Errorf("%v", reply.Error)
	}
	if len(reply.Result) != len(tables) {
		return tables, errors.New("it does not answer as an OVS database does")
	}
	for i, r := range reply.Result {
		if r.Error != "" {
			return tables, errors.New(r.Error)
		}
		tables[i] = r.Rows
	}
	return tables, nil
}

// pair returns the content of ["set", […]] and ["map", […]] (RFC 7047, section 5.1).
func pair(value any, kind string) []any {
	if list, ok := value.([]any); ok && len(list) == 2 && list[0] == kind {
		content, _ := list[1].([]any)
		return content
	}
	return nil
}

// set reads a set of strings. A set of one is the string itself.
func set(value any) (all []string) {
	if text, ok := value.(string); ok {
		return []string{text}
	}
	for _, v := range pair(value, "set") {
		if text, ok := v.(string); ok {
			all = append(all, text)
		}
	}
	slices.Sort(all)
	return all
}

func mapOf(value any) map[string]string {
	all := map[string]string{}
	for _, v := range pair(value, "map") {
		if p, ok := v.([]any); ok && len(p) == 2 {
			all[fmt.Sprint(p[0])] = fmt.Sprint(p[1])
		}
	}
	return all
}

// reach connects to each endpoint of NB, such as ssl:192.0.2.1:6641, and says nothing there.
func reach(ctx context.Context, endpoints []string) []Endpoint {
	all := make([]Endpoint, len(endpoints))
	var wait sync.WaitGroup
	for i, endpoint := range endpoints {
		wait.Go(func() {
			all[i].Endpoint = endpoint
			_, address, _ := strings.Cut(endpoint, ":")
			conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", address)
			if err != nil {
				all[i].Error = err.Error()
				return
			}
			_ = conn.Close()
		})
	}
	wait.Wait()
	return all
}
