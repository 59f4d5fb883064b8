package entry

import (
	"encoding/json"
	"fmt"
	"strings"
)

// KeepLabel is the label of the definitions, so that kubectl can delete all of install.yaml but them.
const KeepLabel = Group + "/keep"

// Definitions returns the CustomResourceDefinitions of all kinds. The API server keeps keys that it does not know, so
// that the controller can refuse them by name: a VLAN in a misspelt key would be lost otherwise.
func Definitions() []map[string]any {
	var all []map[string]any
	for _, k := range Kinds {
		all = append(all, k.definition())
	}
	return all
}

type m = map[string]any

func (k *Kind) definition() m {
	properties, required := m{}, []string{}
	for _, key := range k.keys {
		var schema m
		if err := json.Unmarshal([]byte(key.schema), &schema); err != nil {
			panic("entry: " + k.Name + ": " + key.name + ": " + err.Error()) // impossible: a test makes all schemas
		}
		schema["description"] = key.doc
		properties[key.name] = schema
		if key.required {
			required = append(required, key.name)
		}
	}
	spec := m{
		"type": "object", "description": k.doc, "properties": properties, "x-kubernetes-preserve-unknown-fields": true,
	}
	if len(required) > 0 {
		spec["required"] = required
	}
	var rules []m
	for _, name := range k.names {
		r := fixed(name)
		rules = append(rules, m{"rule": r.cel, "message": r.message})
	}
	for _, r := range k.rules {
		rules = append(rules, m{"rule": r.cel, "message": r.message})
	}
	spec["x-kubernetes-validations"] = rules
	columns := []m{}
	for _, c := range k.columns {
		columns = append(columns, m{"name": c.name, "type": "string", "jsonPath": c.path})
	}
	state := func(condition string) string {
		return fmt.Sprintf(`.status.conditions[?(@.type==%q)].status`, condition)
	}
	columns = append(columns,
		m{"name": "Accepted", "type": "string", "jsonPath": state(accepted)},
		m{"name": "Ready", "type": "string", "jsonPath": state(isReady)},
		m{"name": "Users", "type": "integer", "jsonPath": ".status.users"},
		m{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
	// Helm keeps the definitions when the chart is uninstalled: without them the objects would be deleted.
	return m{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": m{
			"name": k.Plural + "." + Group, "annotations": m{"helm.sh/resource-policy": "keep"},
			"labels": m{KeepLabel: "true"},
		},
		"spec": m{
			"group": Group, "scope": "Cluster",
			"names": m{
				"plural": k.Plural, "singular": strings.ToLower(k.Name), "kind": k.Name, "listKind": k.Name + "List",
				"shortNames": []string{k.Short}, "categories": []string{"ovn-multinet"},
			},
			"versions": []m{{
				"name": Version, "served": true, "storage": true, "subresources": m{"status": m{}},
				"additionalPrinterColumns": columns,
				"schema": m{"openAPIV3Schema": m{
					"type": "object", "required": []string{"spec"},
					"properties": m{
						"apiVersion": m{"type": "string"}, "kind": m{"type": "string"}, "metadata": m{"type": "object"},
						"spec": spec, "status": statusSchema,
					},
				}},
			}},
		},
	}
}

var statusSchema = m{
	"type": "object", "description": "What the controller says of the object.",
	"properties": m{
		"conditions": m{
			"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []string{"type"},
			"description": "Accepted: the entry counts. Ready: nothing is missing for it.",
			"items": m{
				"type": "object", "required": []string{"type", "status", "reason", "message", "lastTransitionTime"},
				"properties": m{
					"type": m{"type": "string"}, "status": m{"type": "string", "enum": []string{"True", "False", "Unknown"}},
					"reason": m{"type": "string"}, "message": m{"type": "string"},
					"observedGeneration": m{"type": "integer", "format": "int64"},
					"lastTransitionTime": m{"type": "string", "format": "date-time"},
				},
			},
		},
		"users":  m{"type": "integer", "description": "How many networks, or users of outside addresses, need the object."},
		"usedBy": m{"type": "array", "description": "The first of them.", "items": m{"type": "string"}},
		"nodes": m{
			"type": "object", "nullable": true, "description": "The nodes that an uplink of the physical network fits.",
			"properties": m{
				"ready": m{"type": "string", "description": "How many have the bridge, and how many should: 3/4."},
				"problems": m{
					"type": "array", "items": m{"type": "string"},
					"description": "Of the first nodes without the bridge: the node's name, and why.",
				},
			},
		},
		"accepted": m{
			"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			"description": "The last spec that was accepted. It is used, also while the present one is refused.",
		},
	},
}

// Table returns the keys of all kinds, in Markdown.
func Table() string {
	var out strings.Builder
	for _, k := range Kinds {
		fmt.Fprintf(&out, "### %s\n\n%s `kubectl get %s`, or `%s`.\n\n| key of `spec` | what it says |\n|---|---|\n",
			k.Name, k.doc, k.Plural, k.Short)
		for _, key := range k.keys {
			name := "`" + key.name + "`"
			if key.required {
				name += " (required)"
			}
			fmt.Fprintf(&out, "| %s | %s |\n", name, key.doc)
		}
		out.WriteString("\n")
	}
	return out.String()
}
