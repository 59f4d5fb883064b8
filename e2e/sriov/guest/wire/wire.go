// Package wire owns what the runner and the guest's first process have to agree on: the order that the one writes into the
// guest's file system, and the code with which the guest ends. It may not do anything.
package wire

// OrderFile is where the order is in the guest.
const OrderFile = "e2e/order.json"

// Order is what the guest is to do.
type Order struct {
	VFs     int      // of each physical function
	Command []string // the program to run once they are there
	Env     []string
}

// ExitPort is QEMU's isa-debug-exit: it ends with 2×byte+1 when a byte is written there.
const ExitPort = 0x501

// base tells a code of ours from those with which QEMU ends by itself; codes are below it.
const base = 0x40

// ExitByte is what the guest writes to report a code.
func ExitByte(code int) byte { return base | byte(min(max(code, 0), base-1)) }

// Result is the code that the guest reported, by how QEMU ended.
func Result(exit int) (code int, ok bool) {
	code = exit>>1 - base
	return code, exit&1 == 1 && code >= 0 && code < base
}
