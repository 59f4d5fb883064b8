package engine

// Index has a set for each object or namespace: the rows that NB may have of it, or the objects that depend on it. An
// empty set is deleted.
type Index[K comparable] map[string]map[K]bool

// Add adds a member to the set of an ID.
func (x Index[K]) Add(id string, member K) {
	if x[id] == nil {
		x[id] = map[K]bool{}
	}
	x[id][member] = true
}

// Remove removes a member from the set of an ID.
func (x Index[K]) Remove(id string, member K) {
	if delete(x[id], member); len(x[id]) == 0 {
		delete(x, id)
	}
}

// DeleteRows deletes the rows of an object that it does not need any more, and removes their keys. It ends at the first
// error.
func (x Index[K]) DeleteRows(id string, needed func(K) bool, deleteRow func(K) error) error {
	for key := range x[id] {
		if needed(key) {
			continue
		}
		if err := deleteRow(key); err != nil {
			return err
		}
		x.Remove(id, key)
	}
	return nil
}

// Listed reports whether NB was read for the rows that objects had when this controller began to lead.
type Listed bool

// Once calls list until it has succeeded once.
func (l *Listed) Once(list func() error) error {
	if *l {
		return nil
	}
	err := list()
	*l = err == nil
	return err
}
