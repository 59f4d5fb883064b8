package images

import _ "embed"

// Manifests are all manifests in one text, as the chart in the folder chart makes them by its default values. After a
// change of the chart run `make install.yaml`.
//
//go:embed install.yaml
var Manifests string
