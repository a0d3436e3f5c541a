package remote

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// directedCmd is a command for one node of a Cluster.
type directedCmd struct {
	redis.Cmder
	to *node
}

// director is a hook of a Cluster's client. It takes directed commands to their nodes, and leaves all others alone.
// Hooks that were added before it see every command.
type director struct{ noHook }

func (director) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d, ok := cmd.(directedCmd); ok {
			return d.to.deliver(ctx, []redis.Cmder{d.Cmder})
		}
		return next(ctx, cmd)
	}
}

func (director) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) == 0 {
			return next(ctx, cmds)
		}
		first, ok := cmds[0].(directedCmd)
		if !ok {
			return next(ctx, cmds)
		}
		own := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			own[i] = cmd
			if d, ok := cmd.(directedCmd); ok {
				own[i] = d.Cmder
			}
		}
		return first.to.deliver(ctx, own)
	}
}
