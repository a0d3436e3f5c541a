package redisurl

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		shown   string
		addrs   []string
		cluster bool
		master  string
		tls     bool
		pool    int
	}{
		"redis://127.0.0.1:6379":                                          {shown: "redis://127.0.0.1:6379/0", addrs: []string{"127.0.0.1:6379"}},
		"redis://u:s3cret@[::1]:7000/3?pool_size=7":                       {shown: "redis://[::1]:7000/3", addrs: []string{"[::1]:7000"}, pool: 7},
		"redis://[fe80::1%25eth0]:7000":                                   {shown: "redis://[fe80::1%eth0]:7000/0", addrs: []string{"[fe80::1%eth0]:7000"}},
		"rediss://u:s3cret@cache.example":                                 {shown: "rediss://cache.example:6379/0", addrs: []string{"cache.example:6379"}, tls: true},
		"unix://u:s3cret@/run/redis.sock?db=2":                            {shown: "unix:///run/redis.sock/2", addrs: []string{"/run/redis.sock"}},
		"rediss://u:s3cret@a:1?addr=b:2&addr=c:3":                         {shown: "rediss://a:1,b:2,c:3/0", addrs: []string{"a:1", "b:2", "c:3"}, cluster: true, tls: true},
		"redis://a:26379/1?master_name=m&addr=b:26379":                    {shown: "redis://a:26379,b:26379/1", addrs: []string{"a:26379", "b:26379"}, master: "m"},
		"redis://u:s3cret@a?read_timeout=3s&route_randomly=true&addr=b:2": {shown: "redis://a:6379,b:2/0", addrs: []string{"a:6379", "b:2"}, cluster: true},
		"redis://:s3%23cret@a:1":                                          {shown: "redis://a:1/0", addrs: []string{"a:1"}},
		"redis://a?pool_size=2147483647":                                  {shown: "redis://a:6379/0", addrs: []string{"a:6379"}, pool: 2147483647},
		"redis://a:65535":                                                 {shown: "redis://a:65535/0", addrs: []string{"a:65535"}},
		"unix:///run/s@1.sock":                                            {shown: "unix:///run/s@1.sock/0", addrs: []string{"/run/s@1.sock"}},
		// A colon in a socket's path is no port.
		"unix:///run/redis:0": {shown: "unix:///run/redis:0/0", addrs: []string{"/run/redis:0"}},
		// The resolver knows the ports of services by name.
		"redis://a:1?addr=b:redis": {shown: "redis://a:1,b:redis/0", addrs: []string{"a:1", "b:redis"}, cluster: true},
		// go-redis takes a negative number of idle connections for no bound.
		"redis://a:1?max_idle_conns=-1": {shown: "redis://a:1/0", addrs: []string{"a:1"}},
	} {
		o, shown, err := Parse(text)
		if err != nil || shown != want.shown {
			t.Errorf("%s: %q, %v", text, shown, err)
			continue
		}
		slices.Sort(o.Addrs)
		if !slices.Equal(o.Addrs, want.addrs) || o.IsClusterMode != want.cluster || o.MasterName != want.master || (o.TLSConfig != nil) != want.tls || o.PoolSize != want.pool {
			t.Errorf("%s: %+v", text, o)
		}
		if strings.Contains(text, "read_timeout") && (o.ReadTimeout != 3*time.Second || !o.RouteRandomly) {
			t.Errorf("%s: %v, %v", text, o.ReadTimeout, o.RouteRandomly)
		}
		switch {
		case want.master == "" && strings.Contains(text, "s3cret") && o.Password != "s3cret", strings.Contains(text, "%23") && o.Password != "s3#cret":
			t.Errorf("%s: password %q", text, o.Password)
		}
	}
}

func TestMistakesShowNoPassword(t *testing.T) {
	for text, want := range map[string]error{
		"":                                                             ErrEmpty,
		"127.0.0.1:6379":                                               ErrScheme,
		"http://u:s3cret@127.0.0.1":                                    ErrScheme,
		"s3cret":                                                       ErrScheme,
		"redis://u:s3cret%zz@127.0.0.1":                                ErrUnreadable,
		"redis://u:s3 cret@127.0.0.1:s3":                               ErrUnreadable,
		"redis://u:12#s3cret@127.0.0.1":                                ErrUnreadable,
		"redis://u:s3cret@127.0.0.1#":                                  ErrUnreadable,
		"redis://u:s3cret@a/first":                                     ErrUnreadable,
		"redis://u:s3cret@a?unknown=1":                                 ErrQuery,
		"redis://u:s3cret@a?addr=s3cret":                               ErrUnreadable,
		"redis://a?addr=s3cret@b:1":                                    ErrUnreadable,
		"redis://a?addr=s3cret%40b":                                    ErrUnreadable,
		"redis://a?master_name=m&addr=s3@b":                            ErrUnreadable,
		"redis://a?master_name=m&s3cret=1":                             ErrQuery,
		"redis://u:53?s3cret;x@b:1":                                    ErrUnreadable,
		"unix://u:53/s3cret@/run/redis.sock":                           ErrUnreadable,
		"redis://u:s3cret@a:1,b:2":                                     ErrSeveral,
		"redis://a,b?master_name=m":                                    ErrSeveral,
		"redis://u:s3cret@a:65536":                                     ErrPort,
		"redis://a:0":                                                  ErrPort,
		"redis://a:99999999999999999999":                               ErrPort,
		"redis://a?addr=b:70000":                                       ErrPort,
		"redis://a?master_name=m&addr=b:70000":                         ErrPort,
		"redis://u:s3cret@a?pool_size=-1":                              ErrPool,
		"redis://u:s3cret@a?pool_size=7&pool_size=2147483648":          ErrPool,
		"redis://a?addr=b&min_idle_conns=2147483648":                   ErrPool,
		"redis://a?master_name=m&max_active_conns=9999999999999999999": ErrPool,
		"unix:///run/redis.sock?max_idle_conns=2147483648":             ErrPool,
		"redis://u:s3cret@a?pool_size=many":                            ErrQuery,
		"unix://run/redis.sock":                                        ErrUnreadable, // the path would be /redis.sock
		"redis://u:s3cret@a:26379?master_name=":                        ErrUnreadable,
		"redis://u:s3cret@a:26379?master_name=&addr=b:26379":           ErrUnreadable,
		"redis://u:s3cret@a/-1":                                        ErrUnreadable,
		"redis://u:s3cret@127.0.0.1:6379:1/":                           ErrUnreadable,
		"redis://u:s3cret@a:6379:1?addr=b:1":                           ErrUnreadable,
		"unix://u:s3cret@/run/redis.sock?db=-1":                        ErrUnreadable,
		"unix://u:s3cret@":                                             ErrUnreadable,
	} {
		_, shown, err := Parse(text)
		if !errors.Is(err, want) || shown != "" || strings.Contains(err.Error(), "s3") {
			t.Errorf("%s: %q, %v", text, shown, err)
		}
	}
}
