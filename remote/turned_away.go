package remote

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// turnedAway is the text with which a server closed a new connection, because it has too many clients or is in
// protected mode.
//
// go-redis greets a server with HELLO, and takes any error of the server for that of a server too old to know HELLO. So
// it goes on, finds the connection closed, and reports only that. turnedAway is not a [redis.Error], so that go-redis
// gives up at once and reports this text.
type turnedAway string

func (t turnedAway) Error() string { return string(t) }

// turnedAwayTexts are how such texts begin.
var turnedAwayTexts = []string{"ERR max number of clients", "DENIED"}

// greetingHook is a hook that reports why a server closed a new connection.
type greetingHook struct{ noHook }

func (greetingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err != nil && strings.EqualFold(cmd.Name(), "hello") && beginsWithAny(err.Error(), turnedAwayTexts) {
			return turnedAway(err.Error())
		}
		return err
	}
}
