package netmodel

import "testing"

func TestCoprime(t *testing.T) {
	for size := uint64(1); size < 300; size++ {
		for n := range size {
			step := coprime(n, size)
			if size > 1 && (step == 0 || gcd(step, size) != 1) || step >= size {
				t.Fatalf("coprime(%d, %d) = %d", n, size, step)
			}
		}
	}
	if step := coprime(1<<31, 1<<32); step%2 == 0 {
		t.Errorf("coprime(2^31, 2^32) = %d", step)
	}
}
