package importer

import (
	"slices"
	"strings"
)

// This file knows which variables the container of a worker reads.

// imageVariables are those of Debezium's own image of Kafka Connect. Its start script exports each as the one with CONNECT_ before
// it, so that they win; the first ones say that it is this image.
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

// workerVariables are the variables of an environment that are properties of a worker, those that win first, and the names of the
// others.
func workerVariables(l layer) (pairs []pair, others []string) {
	image := slices.ContainsFunc(l.pairs, func(p pair) bool { return slices.Contains(imageVariables[:imageMarks], p.name) })
	var connect []pair
	for _, p := range l.pairs {
		switch {
		case image && slices.Contains(imageVariables, p.name):
			pairs = append(pairs, p)
		case strings.HasPrefix(p.name, "CONNECT_"):
			connect = append(connect, p)
		default:
			others = append(others, p.name)
		}
	}
	for _, name := range []string{"KEY_CONVERTER", "VALUE_CONVERTER"} {
		if image && !slices.ContainsFunc(pairs, func(p pair) bool { return p.name == name }) {
			pairs = append(pairs, pair{name: name + imageDefault, text: imageConverter})
		}
	}
	return append(pairs, connect...), others
}
