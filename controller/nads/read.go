package nads

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ovn-multinet/ovn-multinet/netmodel"
)

// SourceFailed says that the source did not answer.
type SourceFailed struct{ Err error }

func (s *SourceFailed) Error() string { return s.Err.Error() }

// Unwrap returns the error of the source.
func (s *SourceFailed) Unwrap() error { return s.Err }

// NotOVN says that another program serves the network of a NAD.
type NotOVN struct{ error }

// noNAD says that a NAD does not exist.
type noNAD struct{ error }

// Is reports whether the error is netmodel.ErrNotFound.
func (*noNAD) Is(err error) bool { return err == netmodel.ErrNotFound }

// Read reads a NAD from the source; nil if it does not exist.
func (x *Index) Read(ctx context.Context, id string) (*netmodel.NAD, error) {
	namespace, name, _ := strings.Cut(id, "/")
	nad, err := x.source.NAD(ctx, namespace, name)
	if errors.Is(err, netmodel.ErrNotFound) {
		return nil, nil
	}
	return nad, err
}

// NetworkNamed returns the ID of the OVN network that a NAD describes. An annotation of objects names the NAD.
func (x *Index) NetworkNamed(ctx context.Context, annotation, objects, id string) (string, error) {
	nad, err := x.Read(ctx, id)
	switch {
	case err != nil:
		return "", &SourceFailed{err}
	case nad == nil:
		return "", &noNAD{fmt.Errorf("annotation %s: NetworkAttachmentDefinition %s does not exist", annotation, id)}
	}
	network, err := nad.NetworkID()
	if err != nil {
		return "", fmt.Errorf("annotation %s: NetworkAttachmentDefinition %s: %w", annotation, id, err)
	}
	if network == "" {
		return "", &NotOVN{fmt.Errorf("annotation %s: network %s is not one of OVN, and ovn-multinet serves %s on OVN's "+
			"networks only", annotation, id, objects)}
	}
	return network, nil
}
