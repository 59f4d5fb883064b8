package lab

import (
	"context"
	"fmt"
	"time"
)

// defaultPatience bounds a wait whose context has no deadline.
const defaultPatience = 2 * time.Minute

// Eventually calls cond until it returns nil, and returns its last error when ctx ends before.
func Eventually(ctx context.Context, cond func() error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultPatience)
		defer cancel()
	}
	const longest = 50 * time.Millisecond
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, longest) {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (gave up: %w)", err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}
