package nad

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/ovn-multinet/ovn-multinet/conf"
)

// TestEveryRequestKey: each key of a request in the JSON form changes the request, or is refused, and is documented.
func TestEveryRequestKey(t *testing.T) {
	values := map[string]string{
		"name": `"green"`, "namespace": `"other"`, "interface": `"data0"`, "ips": `["10.1.0.7"]`,
		"mac": `"02:00:00:00:00:07"`, "default-route": `["10.1.0.1"]`,
		"portMappings": `[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`, "bandwidth": `{"ingressRate":1000}`,
		"cni-args": `{"a":"b"}`, "infiniband-guid": `"c2:11:22:33:44:55:66:77"`, "deviceID": `"0000:01:00.1"`,
		"ipam-claim-reference": `"vm.blue"`,
	}
	parse := func(keys string) ([]Request, error) {
		text := map[string]string{conf.NetworksAnnotation: `[{` + keys + `}]`}
		return ParseRequests(text, "shop", "eth0")
	}
	without, err := parse(`"name":"blue"`)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../docs/networks.md")
	if err != nil {
		t.Fatal(err)
	}
	of := reflect.TypeFor[requestJSON]()
	for i := range of.NumField() {
		key := of.Field(i).Tag.Get("json")
		if !strings.Contains(string(docs), "`"+key+"`") {
			t.Errorf("docs/networks.md does not have the key %s", key)
		}
		keys := fmt.Sprintf(`%q:%s`, key, values[key])
		if key != "name" {
			keys = `"name":"blue",` + keys
		}
		with, err := parse(keys)
		if values[key] == "" || err != nil || reflect.DeepEqual(with, without) {
			t.Errorf("the key %s with the value %q changes nothing: %v", key, values[key], err)
		}
	}
}
