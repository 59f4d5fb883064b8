package conf

// What KubeVirt writes on the pod to which a virtual machine migrates live.
const (
	// MigrationLabel is the label that the pod has from its creation on.
	MigrationLabel = "kubevirt.io/migrationJobUID"
	// MigratedAnnotation is the annotation that the pod gets when the guest runs in it.
	MigratedAnnotation = "kubevirt.io/migration-target-ready-timestamp"
)
