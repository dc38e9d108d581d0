module github.com/cdc-relay/cdc-relay/internal/kafkaclient

go 1.25.0

require (
	github.com/klauspost/compress v1.20.1
	github.com/segmentio/kafka-go v0.4.51
	golang.org/x/sys v0.42.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/xdg-go/scram v1.4.0 // indirect
	github.com/xdg-go/stringprep v1.0.4 // indirect
	golang.org/x/text v0.23.0 // indirect
)
