package ovndb

// The models are generated from trimmed schemas. These have only the tables and columns that we use and that OVN
// 22.03 and OVS 2.13 have, because the client refuses a server that lacks one of them.

//go:generate go tool modelgen -p nb -o nb schema/nb.ovsschema
//go:generate go tool modelgen -p vswitch -o vswitch schema/vswitch.ovsschema
