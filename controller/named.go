package controller

import (
	"context"
	"fmt"
)

// sourceFailed says that the source did not answer.
type sourceFailed struct{ error }

func (s *sourceFailed) Unwrap() error { return s.error }

// networkNamed returns the ID of the OVN network that a NAD describes. An annotation of objects names the NAD.
func (c *Controller) networkNamed(ctx context.Context, annotation, objects, id string) (string, error) {
	nad, err := c.nad(ctx, id)
	switch {
	case err != nil:
		return "", &sourceFailed{err}
	case nad == nil:
		return "", fmt.Errorf("annotation %s: NetworkAttachmentDefinition %s does not exist", annotation, id)
	}
	network, err := nad.NetworkID()
	if err != nil {
		return "", fmt.Errorf("annotation %s: NetworkAttachmentDefinition %s: %w", annotation, id, err)
	}
	if network == "" {
		return "", fmt.Errorf("annotation %s: network %s is not one of OVN, and ovn-multinet serves %s on OVN's "+
			"networks only", annotation, id, objects)
	}
	return network, nil
}
