// Which variables the container of a worker reads.

package settings

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
)

// imageVariables are those of Debezium's own image of Kafka Connect. Its start script exports each
// as the one with CONNECT_ before it, so that they win; the first ones say that it is this image.
var imageVariables = []string{
	"BOOTSTRAP_SERVERS", "CONFIG_STORAGE_TOPIC", "OFFSET_STORAGE_TOPIC", "KEY_CONVERTER", "VALUE_CONVERTER",
	"GROUP_ID", "STATUS_STORAGE_TOPIC", "HOST_NAME", "REST_PORT", "REST_HOST_NAME", "ADVERTISED_HOST_NAME", "ADVERTISED_PORT",
	"OFFSET_FLUSH_INTERVAL_MS", "OFFSET_FLUSH_TIMEOUT_MS", "SHUTDOWN_TIMEOUT",
}

const (
	imageMarks     = 5 // of imageVariables
	imageDefault   = " (not set: the default of Debezium's image)"
	imageConverter = "org.apache.kafka.connect.json.JsonConverter"
)

// workerVariables are the variables of an environment that are properties of a worker, those that
// win first, and the names of the others.
func workerVariables(l read.File) (pairs []read.Pair, others []string) {
	image := slices.ContainsFunc(l.Pairs, func(p read.Pair) bool { return slices.Contains(imageVariables[:imageMarks], p.Name) })
	var connect []read.Pair
	for _, p := range l.Pairs {
		switch {
		case image && slices.Contains(imageVariables, p.Name):
			pairs = append(pairs, p)
		case strings.HasPrefix(p.Name, "CONNECT_"):
			connect = append(connect, p)
		default:
			others = append(others, p.Name)
		}
	}
	for _, name := range []string{"KEY_CONVERTER", "VALUE_CONVERTER"} {
		if image && !slices.ContainsFunc(pairs, func(p read.Pair) bool { return p.Name == name }) {
			pairs = append(pairs, read.Pair{Name: name + imageDefault, Text: imageConverter})
		}
	}
	return append(pairs, connect...), others
}
