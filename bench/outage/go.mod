module github.com/tierlimit/tierlimit/bench/outage

go 1.26.0

require github.com/tierlimit/tierlimit v0.0.0

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgraph-io/ristretto/v2 v2.4.2 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/tierlimit/tierlimit => ../../
