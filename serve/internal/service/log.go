package service

import (
	"context"
	"log/slog"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// logged reports whether requests are logged, as envoyproxy/ratelimit does at the level debug: with these lines its
// users find out why a descriptor does not match.
func (s *Service) logged() bool {
	return s.options.Log != nil && s.options.Log.Enabled(context.Background(), slog.LevelDebug)
}

func oneLine(m proto.Message) string { return protojson.MarshalOptions{}.Format(m) }

// paths returns the path of each descriptor's limit, as /rlconfig shows it. It is "none" if no limit applies,
// "unlimited", or "its own" for a limit that the descriptor carries.
func paths(all []asked) []string {
	paths := make([]string, len(all))
	for i := range all {
		switch a := &all[i]; {
		case a.unlimited:
			paths[i] = "unlimited"
		case a.limit == nil:
			paths[i] = "none"
		case a.limit.StatName == "":
			paths[i] = "its own"
		default:
			paths[i] = a.limit.StatName
		}
	}
	return paths
}
