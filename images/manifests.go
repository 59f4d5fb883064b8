package images

import _ "embed"

// Manifests are all manifests in one text, as the chart in the folder chart makes them by its default values. After a
// change of the chart run `make install.yaml`.
//
//go:embed install.yaml
var Manifests string

// CRD is the manifest of the kind of networks, and PolicyCRD that of the kind of network policies.
//
//go:embed chart/crds/network-attachment-definitions.yaml
var CRD string

//go:embed chart/crds/multi-networkpolicies.yaml
var PolicyCRD string
