package conf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestDescribe(t *testing.T) {
	inUse := Errorf(CodeInUse, "release it", "address %s is held by %s", "10.1.0.7", "shop/web-1")
	tests := []struct {
		name    string
		err     error
		code    uint
		msg     string
		details string
	}{
		{"an Error", inUse, 103, "address 10.1.0.7 is held by shop/web-1", "release it"},
		{"wrapped", fmt.Errorf("attach shop/blue as net1: %w", inUse), 103, "attach shop/blue as net1: address 10.1.0.7 is held by shop/web-1", "release it"},
		{"wrapped twice", fmt.Errorf("ADD: %w", fmt.Errorf("net1: %w", inUse)), 103, "ADD: net1: address 10.1.0.7 is held by shop/web-1", "release it"},
		{"an Error around an Error: the outer code", Errorf(CodeTryAgain, "wait", "agent: %w", inUse), 11, "agent: address 10.1.0.7 is held by shop/web-1", "wait"},
		{"joined", errors.Join(io.EOF, inUse), 103, "EOF address 10.1.0.7 is held by shop/web-1", "release it"},
		{"an Error around a deadline", Errorf(CodeNoFlows, "look at northd", "flows: %w", context.DeadlineExceeded), 106, "flows: context deadline exceeded", "look at northd"},
		{"a deadline", fmt.Errorf("NB: %w", context.DeadlineExceeded), 11, "NB: context deadline exceeded", "the deadline of the call passed first"},
		{"an end by the caller", fmt.Errorf("NB: %w", context.Canceled), 999, "NB: context canceled", ""},
		{"another error", io.EOF, 999, "EOF", ""},
		{"lines become one", fmt.Errorf("a\n\tb\r\n  c %w\n", inUse), 103, "a b c address 10.1.0.7 is held by shop/web-1", "release it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, msg, details := Describe(tt.err)
			if code != tt.code || msg != tt.msg || details != tt.details {
				t.Errorf("got  %d %q %q\nwant %d %q %q", code, msg, details, tt.code, tt.msg, tt.details)
			}
		})
	}
}

func TestErrorfKeepsItsCause(t *testing.T) {
	err := fmt.Errorf("agent: %w", Errorf(CodeTryAgain, "", "read: %w", io.ErrUnexpectedEOF))
	if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		t.Errorf("%v: the cause is lost", err)
	}
}

func TestHasCode(t *testing.T) {
	err := fmt.Errorf("net1: %w", Errorf(CodeInUse, "", "x"))
	for code, want := range map[uint]bool{CodeInUse: true, CodeTryAgain: false, 0: false} {
		if HasCode(err, code) != want {
			t.Errorf("HasCode(%d) is %t", code, !want)
		}
	}
	if HasCode(io.EOF, 0) || HasCode(nil, 0) {
		t.Error("an error without a code has code 0")
	}
}
