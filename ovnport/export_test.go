package ovnport

// MaxGroupOperations is for tests.
const MaxGroupOperations = maxGroupOperations

// EmptyPasses is for tests.
const EmptyPasses = emptyPasses

// Waiting returns how many writes wait for a transaction that is at the database.
func (n *NB) Waiting() int {
	n.group.mu.Lock()
	defer n.group.mu.Unlock()
	return len(n.group.waiting)
}

// GuestLinkLocal are the link-local addresses that a guest may use beside that of its MAC.
var GuestLinkLocal = guestLinkLocal
