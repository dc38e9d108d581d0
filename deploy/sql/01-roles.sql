-- The roles around the relay, made once by a role that may create roles. Passwords and pg_hba.conf lines are yours:
--
--   psql shop -f deploy/sql/01-roles.sql -f deploy/sql/02-relay.sql -f deploy/sql/03-operator.sql -f deploy/sql/04-monitor.sql
--
-- 02 is for a database without a relay; `cdc-relay init --outbox-table --url ... --role relay` does the same, and may be run again.
-- On managed services REPLICATION is given otherwise: docs/postgresql.md#managed-services.

-- The relay logs in as this one: it replicates, and may do what 02-relay.sql grants.
CREATE ROLE relay LOGIN REPLICATION;

-- The schema cdc_relay and all in it belong to it, in each database of the cluster. Nobody logs in as it: what its tables hold, and
-- what is run when they are written, only a superuser changes, or a role that was granted it. A relay of another database may have it already.
DO $$ BEGIN CREATE ROLE cdc_relay_owner NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;

-- People who look after deferred events and dead letters get it by GRANT relay_operator TO ann.
CREATE ROLE relay_operator NOLOGIN;

-- Monitoring, which may not see payloads, keys or ids, gets it by GRANT relay_monitor TO exporter.
CREATE ROLE relay_monitor NOLOGIN;
