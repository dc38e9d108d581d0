module github.com/cdc-relay/cdc-relay/tools/deploycheck

go 1.26.0

require github.com/grafana/grafana-foundation-sdk/go v0.0.18
