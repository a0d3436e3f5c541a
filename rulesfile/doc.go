// Package rulesfile holds a limiter's rules in a YAML file: limits, also per plan and
// per key, and everything else that a rule can be told.
//
//	rules:
//	  search:
//	    limit: 60/1m
//	    plans: {gold: 1000/1m}
//	    keys: {tenant-7: gold}
//
// A program loads the file, asks for the rules that it uses, and lets the file be
// watched:
//
//	rules, err := rulesfile.Load(limiter, "rules.yaml")
//	search, err := rules.Rule("search")
//	go rules.Watch(ctx)
//	d, err := search.Allow(ctx, tenant)
//
// A file is taken whole or not at all. If anything in it is wrong, the rules stay as they
// were, and the error has the line and column of each mistake. What was charged goes on
// to count under the new rules: see tiered.Limiter.ChangeRule.
//
// docs/rules.md has all fields, in an example with comments.
package rulesfile
