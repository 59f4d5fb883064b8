package journal_test

import (
	"fmt"

	"github.com/ovn-multinet/ovn-multinet/node/journal"
)

// An entry's file is named after the container and its primary interface.
func ExampleParseID() {
	sandbox, ok := journal.ParseID("4f1c@eth0")
	fmt.Println(sandbox.ContainerID, sandbox.Interface, ok)
	_, ok = journal.ParseID("4f1c.lock")
	fmt.Println(ok)
	// Output:
	// 4f1c eth0 true
	// false
}
