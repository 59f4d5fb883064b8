package netmodel

import "hash/fnv"

// Order is an order of the numbers below a size. It begins at a hash of a text and continues by steps that reach every
// number once: whoever searches for a free address by it seldom meets others, and gets the same address again if that
// is free.
type Order struct{ size, start, step, given uint64 }

// NewOrder returns the order of the numbers below size by the hash of the text.
func NewOrder(size uint64, text string) Order {
	h := fnv.New64a()
	h.Write([]byte(text))
	sum := h.Sum64()
	return Order{size: size, start: sum % size, step: coprime((sum>>32)%size, size)}
}

// From returns the order with another first number.
func (o Order) From(start uint64) Order {
	o.start = start
	return o
}

// Given is how many numbers Next has returned.
func (o *Order) Given() uint64 { return o.given }

// Exhausted reports whether Next has returned every number.
func (o *Order) Exhausted() bool { return o.given >= o.size }

// Next returns the next number. After the last one comes the first one again.
func (o *Order) Next() uint64 {
	i := (o.start + o.given%o.size*o.step) % o.size
	o.given++
	return i
}

// coprime returns the least number >= n that has no common factor with size: steps of that width reach every index.
func coprime(n, size uint64) uint64 {
	for n = max(n, 1); gcd(n, size) != 1; n++ {
	}
	return n % size
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
