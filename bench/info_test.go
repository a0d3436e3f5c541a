package main

import (
	"maps"
	"math"
	"testing"
)

func TestParseServerUsage(t *testing.T) {
	stats := parseInfo("# Commandstats\r\n" +
		"cmdstat_evalsha:calls=20,usec=175,usec_per_call=8.75,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_incr:calls=3,usec=1\r\n" +
		"cmdstat_config|get:calls=1,usec=1\r\n")
	cpu := parseInfo("# CPU\r\nused_cpu_sys:1.25\r\nused_cpu_user:2.5\r\nused_cpu_sys_children:9\r\n")
	u, err := parseServerUsage(stats, cpu)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"evalsha": 20, "incr": 3, "config|get": 1}
	if !maps.Equal(u.commands, want) || math.Abs(u.cpu-3.75) > 1e-9 {
		t.Errorf("got %+v, want %v and 3.75 s of CPU", u, want)
	}
	if _, err := parseServerUsage(stats, nil); err == nil {
		t.Error("no error without CPU times")
	}
}
