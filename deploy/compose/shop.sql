-- The roles and databases of compose.yaml's profile shop. It may run any number of times. Passwords are for trying; compose.yaml has the
-- same.
SELECT 'CREATE ROLE order_service LOGIN PASSWORD ''order-service''' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'order_service') \gexec
SELECT 'CREATE ROLE notification_service LOGIN PASSWORD ''notification-service''' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'notification_service') \gexec

-- order-service makes its own tables, and writes to the outbox, which it cannot change.
GRANT CREATE ON SCHEMA public TO order_service;
GRANT INSERT ON outbox TO order_service;

SELECT 'CREATE DATABASE shop_notifications OWNER notification_service' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'shop_notifications') \gexec
