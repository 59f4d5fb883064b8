package sysdump

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ovn-multinet/ovn-multinet/internal/version"
)

// MissingFile is the file of the archive that lists what could not be collected.
const MissingFile = "missing.txt"

// never is what no archive has, one in a line.
var never = []string{
	"all objects: managedFields, and all annotations that are not ovn-multinet's or read by it, such as " +
		"kubectl.kubernetes.io/last-applied-configuration",
	"networks: spec.config of other plugins, except cniVersion, name and type; of a refused network of ovn-multinet, " +
		"keys that do not exist, and keys whose values are lists or objects",
	"objects of the operator: keys that do not exist; of a refused one also keys whose values are lists or objects",
	"policies: annotations and fields that NetworkPolicy does not have",
	"pods: pods without annotations of networks; of the others the environment, arguments, commands, volumes, images, " +
		"what containers say of their state, and cni-args of the annotation with the networks",
	"our pods, DaemonSets, Deployments and Jobs: the environment, volumes, commands, and arguments that the chart does " +
		"not set",
	"ConfigMaps of our namespace: values of keys that neither the chart nor our programs write, and certificates; of " +
		"the controllers' file its comments, and the whole file if it is invalid",
	"Secrets of our namespace: all values; the archive has their names, types and keys, and the sizes of the values",
	"Events: those of other programs about objects of other namespaces than ours",
	"logs: those of containers that the chart does not have",
	"Services and EndpointSlices",
}

type namedText struct{ name, text string }

// texts returns the files that say what the archive is, and the number of missing things.
func (c *collector) texts(began time.Time) (missing int, all []namedText) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range [][]string{c.missing, c.omitted, c.none} {
		slices.Sort(list)
	}
	namespace := "all namespaces"
	if c.Namespace != "" {
		namespace = "namespace " + c.Namespace
	}
	about := []string{
		"program: kubectl-multinet " + version.String(),
		"began: " + began.UTC().Format(time.RFC3339),
		fmt.Sprintf("took: %s of at most %s (--timeout)", time.Since(began).Round(time.Millisecond), c.Timeout),
		"networks, policies, IPAMClaims, pods and events of: " + namespace,
		fmt.Sprintf("at most: %d objects of a kind, %d bytes of a file, the last %d lines and %d bytes of a log, "+
			"%d bytes in all",
			c.bounds.objects, c.bounds.file, c.logLines, c.logBytes, c.total),
		"what could not be collected: " + MissingFile,
		"what is left out on purpose: omitted.txt",
	}
	for _, line := range c.none {
		about = append(about, "not in this cluster: "+line)
	}
	return len(c.missing), []namedText{
		{"about.txt", lines(about)},
		{MissingFile, lines(c.missing)},
		{"omitted.txt", lines(slices.Concat(never, c.omitted))},
	}
}

func lines(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, "\n") + "\n"
}
