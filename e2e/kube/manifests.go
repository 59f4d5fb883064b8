package kube

// baseManifests are what every cluster has: what Flannel may do.
const baseManifests = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: flannel}
rules:
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [nodes/status]
  verbs: [patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: flannel}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: flannel}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: flannel}
`

// ClusterPolicyKind stands in for the kind of network-policy-api, of which only the conditions matter to the API server.
const ClusterPolicyKind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: clusternetworkpolicies.policy.networking.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for tests"}
spec:
  group: policy.networking.k8s.io
  scope: Cluster
  names: {plural: clusternetworkpolicies, singular: clusternetworkpolicy, kind: ClusterNetworkPolicy, listKind: ClusterNetworkPolicyList}
  versions:
  - name: v1alpha2
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties:
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type]
                  properties: {type: {type: string}}
                  x-kubernetes-preserve-unknown-fields: true
---
`
