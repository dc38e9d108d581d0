-- Passwords for trying; compose/*.yaml have the same.
ALTER ROLE relay PASSWORD 'relay';
